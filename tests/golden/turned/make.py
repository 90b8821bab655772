"""Records what Pillow makes of WebP files, of 16-bit PNG, and of pictures with an EXIF orientation.

    python3 tests/golden/turned/make.py      # needs numpy, pillow, safetensors

files/: the pictures. images.csv: a row each. pixels.safetensors: NAME as Image.open(file).convert
("RGB") has it, NAME.turned after ImageOps.exif_transpose, and of 16-bit PNG NAME.scaled, v / 257
rounded to nearest by NumPy.
"""
import csv
import pathlib

import numpy
import PIL
from PIL import Image, ImageOps
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).resolve().parent
FILES = HERE / "files"
HEIGHT, WIDTH = 19, 27
ORIENTATION = 0x0112


def picture(channels, seed):
    """Smooth colors with some noise: [HEIGHT, WIDTH, channels] bytes."""
    random = numpy.random.default_rng(seed)
    y, x = numpy.mgrid[0:HEIGHT, 0:WIDTH]
    waves = [128 + 100 * numpy.sin(x / (3 + c) + y / (5 + 2 * c) + seed) for c in range(channels)]
    values = numpy.stack(waves, 2) + random.normal(0, 6, (HEIGHT, WIDTH, channels))
    return values.clip(0, 255).astype(numpy.uint8)


def exif(orientation):
    tags = Image.Exif()
    tags[ORIENTATION] = orientation
    return tags.tobytes()


def write_files():
    FILES.mkdir(exist_ok=True)
    for orientation in range(1, 9):
        image = Image.fromarray(picture(3, orientation))
        tags = exif(orientation)
        image.save(FILES / f"exif{orientation}.jpg", quality=85, exif=tags)
    image = Image.fromarray(picture(3, 20))
    image.save(FILES / "exif6.png", exif=exif(6))
    image.save(FILES / "exif8.webp", quality=80, exif=exif(8))
    image.save(FILES / "exif3_lossless.webp", lossless=True, exif=exif(3))
    image.save(FILES / "lossy.webp", quality=70)
    image.save(FILES / "lossless.webp", lossless=True)
    Image.fromarray(picture(4, 21)).save(FILES / "alpha_lossy.webp", quality=70)
    Image.fromarray(picture(4, 22)).save(FILES / "alpha_lossless.webp", lossless=True, exact=True)
    random = numpy.random.default_rng(5)
    grey = random.integers(0, 65536, (HEIGHT, WIDTH)).astype(numpy.uint16)
    grey[0, :9] = [0, 1, 128, 129, 255, 256, 257, 65407, 65535]
    Image.fromarray(grey).save(FILES / "grey16.png")
    return grey


def main():
    grey = write_files()
    tensors, rows = {}, []
    for path in sorted(FILES.iterdir()):
        image = Image.open(path)
        rows.append([path.name, image.format, image.height, image.width,
                     image.getexif().get(ORIENTATION, 1)])
        tensors[path.name] = numpy.asarray(image.convert("RGB"))
        turned = ImageOps.exif_transpose(image).convert("RGB")
        tensors[path.name + ".turned"] = numpy.ascontiguousarray(numpy.asarray(turned))
    scaled = numpy.rint(grey / 257.0).astype(numpy.uint8)
    tensors["grey16.png.scaled"] = numpy.repeat(scaled[:, :, None], 3, 2)
    with open(HERE / "images.csv", "w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["file", "format", "H", "W", "orientation"])
        writer.writerows(rows)
    save_file(tensors, HERE / "pixels.safetensors", {"pillow": PIL.__version__})


if __name__ == "__main__":
    main()
