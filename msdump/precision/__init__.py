"""How single operators compute, where users say it: values between the configuration and the device."""
