"""Models of single operators, with the device's arithmetic around them."""
