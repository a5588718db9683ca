"""What codecs are called, see `selfreminder.memory.codec`. Nothing here needs torch."""

ZLIB = "+zlib"
_PLAIN = ("raw", "float32", "float16", "uint8", "affine8")
NAMES = ("auto", *_PLAIN, "compressed", *(f"{name}{ZLIB}" for name in ("auto", *_PLAIN)))
LOGIT_NAMES = ("float32", "float16", "int8")
