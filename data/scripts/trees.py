"""Data sets whose images are files of their own: what of their layout fetch.py checks.

Each check raises LayoutError naming the file, and returns a line about what is there. Pictures are
not decoded (ada-train does that); label images are, down to their values.
"""
import collections
import pathlib
import struct
import xml.etree.ElementTree as ElementTree
import zlib

PICTURES = (".jpg", ".jpeg", ".png")
CAMVID_IMAGES = {"train": 367, "val": 101, "test": 233}
CAMVID_CLASSES, CAMVID_VOID = 11, 11
VOC_IMAGES = {"VOC2007": {"trainval": 5011, "test": 4952}, "VOC2012": {"trainval": 11540}}


class LayoutError(Exception):
    """What is wrong with a folder, in words."""


def png_header(path, content):
    """Width, height, bits, kind of colour, interlaced."""
    if content[:8] != b"\x89PNG\r\n\x1a\n" or content[12:16] != b"IHDR" or len(content) < 33:
        raise LayoutError(f"{path}: is no PNG")
    width, height, bits, kind, _, _, interlaced = struct.unpack(">IIBBBBB", content[16:29])
    return width, height, bits, kind, interlaced


def jpeg_size(path, content):
    at = 2
    while at + 9 < len(content):
        if content[at] != 0xFF:
            break
        marker = content[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", content[at + 5:at + 9])
            return width, height
        at += 1 if marker == 0xFF else 2 + struct.unpack(">H", content[at + 2:at + 4])[0]
    raise LayoutError(f"{path}: the JPEG has no size")


def picture_size(path):
    content = path.read_bytes()
    if content[:2] == b"\xff\xd8":
        return jpeg_size(path, content)
    return png_header(path, content)[:2]


def unfiltered(row, above, kind, path):
    """A row of a PNG of one byte a step, as it was before its filter."""
    if kind == 0:
        return row
    if kind == 2:
        return bytearray((a + b) & 255 for a, b in zip(row, above))
    if kind not in (1, 3, 4):
        raise LayoutError(f"{path}: the PNG's data is damaged")
    left = corner = 0
    for i, value in enumerate(row):
        up = above[i]
        if kind == 1:
            guess = left
        elif kind == 3:
            guess = (left + up) >> 1
        else:
            p = left + up - corner
            by_left, by_up, by_corner = abs(p - left), abs(p - up), abs(p - corner)
            guess = left if by_left <= by_up and by_left <= by_corner else (
                up if by_up <= by_corner else corner)
        corner = up
        left = row[i] = (value + guess) & 255
    return row


def labels_of(path):
    """(width, height, the set of values) of a grey or palette PNG of up to 8 bits."""
    content = path.read_bytes()
    width, height, bits, kind, interlaced = png_header(path, content)
    if kind not in (0, 3) or bits > 8:
        raise LayoutError(f"{path}: no label image; expected 8-bit grey or palette PNG")
    if interlaced:
        return width, height, set()  # ada-train reads it; its values are not looked at here
    packed, at = b"", 8
    while at + 8 <= len(content):
        length, name = struct.unpack(">I4s", content[at:at + 8])
        if name == b"IDAT":
            packed += content[at + 8:at + 8 + length]
        at += 12 + length
    try:
        data = zlib.decompress(packed)
    except zlib.error as error:
        raise LayoutError(f"{path}: the PNG's data is damaged: {error}") from error
    stride = (width * bits + 7) // 8
    if len(data) != height * (stride + 1):
        raise LayoutError(f"{path}: the PNG's data is cut off")
    found, above = set(), bytearray(stride)
    for y in range(height):
        begin = y * (stride + 1)
        above = unfiltered(bytearray(data[begin + 1:begin + 1 + stride]), above, data[begin], path)
        found.update(above)
    if bits < 8:
        mask = (1 << bits) - 1
        found = {value >> shift & mask for value in found for shift in range(0, 8, bits)}
    return width, height, found


def pictures_of(folder):
    if not folder.is_dir():
        raise LayoutError(f"{folder}: no such folder")
    return {path.stem: path for path in sorted(folder.iterdir())
            if path.suffix.lower() in PICTURES}


def check_camvid(folder):
    """PATH/SPLIT and PATH/SPLITannot; label images of their pictures' size, of values 0 to 11."""
    counts = {}
    for split in CAMVID_IMAGES:
        if split == "val" and not (folder / split).is_dir():
            continue
        pictures, labels = pictures_of(folder / split), pictures_of(folder / f"{split}annot")
        if not pictures:
            raise LayoutError(f"{folder / split}: holds no pictures")
        for name, picture in pictures.items():
            if name not in labels:
                raise LayoutError(f"{picture}: has no label image {folder / f'{split}annot'}/{name}.png")
            width, height, values = labels_of(labels[name])
            if (width, height) != picture_size(picture):
                raise LayoutError(f"{labels[name]}: {width} x {height} pixels, and {picture} has "
                                  "{} x {}".format(*picture_size(picture)))
            above = [value for value in values if value >= CAMVID_CLASSES and value != CAMVID_VOID]
            if above:
                raise LayoutError(f"{labels[name]}: label {min(above)} is none of the classes "
                                  f"(0 to {CAMVID_CLASSES - 1}) nor {CAMVID_VOID}, void")
        counts[split] = len(pictures)
    return told(counts, CAMVID_IMAGES, "CamVid")


def told(counts, published, name):
    words = ", ".join(f"{count} {split}" for split, count in counts.items())
    return f"{words} images, each with its truth" + (
        "" if counts == published else f"; this is not the published {name}")


def check_voc_image(year, name, place):
    xml = year / "Annotations" / f"{name}.xml"
    picture = next((path for end in (".jpg", ".jpeg", ".png")
                    if (path := year / "JPEGImages" / (name + end)).is_file()), None)
    if picture is None:
        raise LayoutError(f"{place}: {name} has no picture in {year / 'JPEGImages'}")
    if not xml.is_file():
        raise LayoutError(f"{place}: {name} has no annotation {xml}")
    try:
        root = ElementTree.parse(xml).getroot()
    except (ElementTree.ParseError, ValueError, LookupError) as error:  # also: its encoding
        raise LayoutError(f"{xml}: {error}") from error
    for node in root.findall("object"):
        for tag in ("name", "bndbox/xmin", "bndbox/ymin", "bndbox/xmax", "bndbox/ymax"):
            if not (node.findtext(tag) or "").strip():
                raise LayoutError(f"{xml}: an object without {tag}")
    try:
        said = tuple(float(root.findtext(f"size/{side}") or 0) for side in ("width", "height"))
    except ValueError as error:
        raise LayoutError(f"{xml}: size: {error}") from error
    if 0 not in said and said != picture_size(picture):
        raise LayoutError(f"{xml}: size is {said[0]:g} x {said[1]:g}, and {picture} has "
                          "{} x {}".format(*picture_size(picture)))


def check_voc(year):
    """One folder with ImageSets/Main, JPEGImages and Annotations."""
    counts = collections.OrderedDict()
    for split in ("trainval", "test"):
        listing = year / "ImageSets" / "Main" / f"{split}.txt"
        if not listing.is_file():
            continue
        try:
            lines = listing.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise LayoutError(f"{listing}: {error}") from error
        names = [line.split()[0] for line in lines if line.split()]
        for number, name in enumerate(names, 1):
            check_voc_image(year, name, f"{listing}: name {number}")
        counts[split] = len(names)
    if not counts:
        raise LayoutError(f"{year / 'ImageSets/Main'}: has neither trainval.txt nor test.txt")
    return f"{year.name}: " + told(dict(counts), VOC_IMAGES.get(year.name, {}), "PASCAL VOC")


def voc_years(folder):
    """The folders with ImageSets: `folder`, or those below it or below VOCdevkit."""
    for root in (folder, folder / "VOCdevkit"):
        if (root / "ImageSets").is_dir():
            return [root]
        if root.is_dir():
            years = [path for path in sorted(root.iterdir()) if (path / "ImageSets").is_dir()]
            if years:
                return years
    raise LayoutError(f"{folder}: holds no folder ImageSets")


def check_voc_years(folder):
    return "; ".join(check_voc(year) for year in voc_years(folder))


def camvid_root(folder):
    """The folder with train and trainannot: `folder`, or one below it."""
    for root in (folder, folder / "CamVid", *sorted(folder.glob("*/CamVid"))):
        if (root / "trainannot").is_dir():
            return root
    raise LayoutError(f"{folder}: holds no folders train and trainannot")


def below(root, wanted):
    """The files that belong to a data set, relative to its root."""
    for name in wanted:
        for path in sorted((root / name).rglob("*")):
            if path.is_file():
                yield path.relative_to(root)


def camvid_files(folder):
    root = camvid_root(folder)
    wanted = [split + end for split in CAMVID_IMAGES for end in ("", "annot")]
    return [(root / path, path) for path in below(root, wanted)]


def voc_files(folder):
    years = voc_years(folder)
    files = []
    for year in years:
        above = pathlib.Path(year.name) if year != folder else pathlib.Path()
        files += [(year / path, above / path)
                  for path in below(year, ("ImageSets/Main", "JPEGImages", "Annotations"))]
    return files
