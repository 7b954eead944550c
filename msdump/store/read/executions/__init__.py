"""Several runs in one path: such as share directories, told by times of files, and others."""
