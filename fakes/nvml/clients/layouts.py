"""Prints the layouts that a library claims. Arguments: the library."""
import ctypes
import sys

library = ctypes.CDLL(sys.argv[1])
library.hotpot_fake_layouts.restype = ctypes.c_char_p
print(library.hotpot_fake_layouts().decode())
