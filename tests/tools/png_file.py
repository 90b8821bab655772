"""8-bit PNG files for tests, written byte by byte."""
import struct
import zlib

GREY, RGB, PALETTE = 0, 2, 3


def png(width, height, pixels, kind=GREY, filtered=False):
    """`pixels`: the bytes of all rows; `filtered`: as the file has them, a filter before each row."""
    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(
            ">I", zlib.crc32(name + body))
    size = width * (3 if kind == RGB else 1)
    rows = pixels if filtered else b"".join(b"\0" + bytes(pixels[y * size:(y + 1) * size])
                                            for y in range(height))
    colours = chunk(b"PLTE", bytes((7 * i) % 256 for i in range(768))) if kind == PALETTE else b""
    return (b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0))
            + colours + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
