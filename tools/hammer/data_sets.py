"""Small data sets of PNG and JPEG pictures: a folder of classes, PASCAL VOC's layout, CamVid's."""
import pathlib
import random
import struct
import zlib

PHOTOS = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/pictures/files"
BOX = ("<object><name>{}</name><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax>"
       "<ymax>{}</ymax></bndbox></object>")


def _png(path, width, height, kind, values):
    """kind: 0 grey, 2 RGB; `values`: the bytes of all rows."""
    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(
            ">I", zlib.crc32(name + body))

    size = len(values) // height
    rows = b"".join(b"\0" + values[y * size:(y + 1) * size] for y in range(height))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n"
                     + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0))
                     + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def _picture(path, draws, width=21, height=17):
    _png(path, width, height, 2, draws.randbytes(3 * width * height))


def _photos():
    """The content of small JPEG files of every kind."""
    return [path.read_bytes() for path in sorted(PHOTOS.glob("*.jpg"))]


def _size(jpeg):
    """Width and height, from the header of a frame."""
    at = 2
    while True:
        marker, length = struct.unpack(">HH", jpeg[at:at + 4])
        if 0xFFC0 <= marker <= 0xFFC2:
            height, width = struct.unpack(">HH", jpeg[at + 5:at + 9])
            return width, height
        at += 2 + length


def make_folder(folder):
    draws, photos = random.Random(1), _photos()
    for split, count in (("train", 12), ("val", 4)):
        for name in ("cat", "dog"):
            place = folder / split / name
            for i in range(count):
                if i % 2 == 0:
                    _picture(place / f"{i}.png", draws)
                else:
                    (place / f"{i}.jpg").write_bytes(photos[i % len(photos)])


def make_voc(folder):
    draws, photos = random.Random(2), _photos()
    for part in ("ImageSets/Main", "JPEGImages", "Annotations"):
        (folder / part).mkdir(parents=True)
    for split, count in (("trainval", 16), ("test", 5)):
        names = [f"{split}{i}" for i in range(count)]
        (folder / f"ImageSets/Main/{split}.txt").write_text("\n".join(names) + "\n")
        for i, name in enumerate(names):
            width, height = 21, 17
            if i % 2 == 0:
                _picture(folder / f"JPEGImages/{name}.png", draws)
            else:
                photo = photos[i % len(photos)]
                width, height = _size(photo)
                (folder / f"JPEGImages/{name}.jpg").write_bytes(photo)
            boxes = "".join(BOX.format(kind, 1 + width // 8, 1 + height // 8, width - width // 4,
                                       height - height // 4)
                            for kind in ("cell", "plate")[:1 + i % 2])
            (folder / f"Annotations/{name}.xml").write_text(
                f"<annotation><size><width>{width}</width><height>{height}</height></size>{boxes}"
                "</annotation>\n")


def make_camvid(folder):
    draws, photos = random.Random(3), _photos()
    photos = [photo for photo in photos if _size(photo) == _size(photos[0])]
    width, height = _size(photos[0])
    for split, count in (("train", 10), ("test", 4)):
        for i in range(count):
            place = folder / split
            if i % 2 == 0:
                _picture(place / f"{i}.png", draws, width, height)
            else:
                (place / f"{i}.jpg").write_bytes(photos[i % len(photos)])
            labels = bytes((x // 4 + y // 4 + i) % 3 if y else 255
                           for y in range(height) for x in range(width))
            _png(folder / f"{split}annot" / f"{i}.png", width, height, 0, labels)
