#!/usr/bin/python3
"""Fetches a public data set, checks it and puts its files where ada-train reads them.

Takes the files from the data set's own site, or from a folder (--from) where they already are. What
is complete and correct already is left alone. Only Python's standard library is used.

Exit status, as the program's: 0; 2 command line; 3 files that cannot be had or are not what they
should be, as without a network; 6 a folder that cannot be written.
"""
import argparse
import contextlib
import fcntl
import filecmp
import gzip
import hashlib
import io
import json
import lzma
import os
import pathlib
import shutil
import sys
import tarfile
import zlib

import trees
from catalog import CATALOG, TreeSet
from download import PIECE, FetchError, check, fetch, fetch_archive, pieces, say, sha256_of


def data_root():
    """The folder of all data sets, as ada-train finds it: $ADA_DATA, or data/ where one works."""
    return pathlib.Path(os.environ.get("ADA_DATA") or "data")


def open_plain(path):
    """The unpacked content of a plain, .gz, .dz or .xz file."""
    if path.suffix in (".gz", ".dz"):
        return gzip.open(path, "rb")
    if path.suffix == ".xz":
        return lzma.open(path, "rb")
    return open(path, "rb")


DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError)


def content_sha256(path):
    """SHA-256 of the unpacked content; FetchError where it cannot be read or unpacked."""
    try:
        with open_plain(path) as stream:
            return sha256_of(stream)
    except DAMAGED as error:
        raise FetchError(f"{path}: cannot be read: {error}") from error


@contextlib.contextmanager
def written_beside(path):
    """A file object whose content becomes `path` at the end, or nothing at all."""
    beside = path.with_name(f".{path.name}.new")
    try:
        with open(beside, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_checked(stream, name, expected, path):
    """Copies `stream` to `path` if its SHA-256 is `expected`; `name` stands in messages."""
    digest = hashlib.sha256()
    with written_beside(path) as out:
        try:
            for piece in pieces(stream):
                digest.update(piece)
                out.write(piece)
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
            raise FetchError(f"{name}: cannot be unpacked: {error}") from error
        check(name, expected, digest.hexdigest())


def is_good(path, expected):
    try:
        return path.is_file() and content_sha256(path) == expected
    except FetchError:
        return False


def missing_files(data_set, target):
    """The names of the files that are not there yet, plain or .gz, with the right content."""
    def forms(name):
        return [target / name] if data_set.archive else [target / name, target / f"{name}.gz"]

    missing = []
    for name, expected in data_set.files.items():
        # ada-train takes the plain file where there are both, so the first one there must be good.
        there = [path for path in forms(name) if path.exists()]
        if not there or not is_good(there[0], expected):
            missing.append(name)
    return missing


def tar_of_deb(path):
    """The tar file with a Debian package's files, in memory: a member of an ar archive."""
    content = path.read_bytes()
    at = 8  # after the magic string
    while content.startswith(b"!<arch>\n") and at + 60 <= len(content):
        name, size = content[at:at + 16].decode("ascii", "replace").strip(), content[at + 48:at + 58]
        if not size.strip().isdigit():
            break
        end = at + 60 + int(size)
        if name.startswith("data.tar"):
            return io.BytesIO(content[at + 60:end])
        at = end + end % 2
    raise FetchError(f"{path}: no Debian package with data.tar")


def open_archive(path):
    if path.suffix == ".deb":
        return tarfile.open(fileobj=tar_of_deb(path), mode="r:*")
    return tarfile.open(path, "r:gz")


def unpack_archive(data_set, archive, target, wanted):
    """Takes the wanted files out of a checked .tar.gz or .deb; nothing else in it is touched."""
    say(f"unpacking {archive}")
    left = {data_set.packed_as.get(name, name): name for name in wanted}
    try:
        with open_archive(archive) as tar:
            for member in tar:
                stored = pathlib.PurePosixPath(member.name).name
                if not member.isfile() or stored not in left:
                    continue
                name = left.pop(stored)
                stream = tar.extractfile(member)
                if name in data_set.packed_as:
                    stream = gzip.GzipFile(fileobj=stream)
                write_checked(stream, f"{archive}:{member.name}", data_set.files[name],
                              target / name)
    except (EOFError, zlib.error, tarfile.TarError, gzip.BadGzipFile) as error:
        raise FetchError(f"{archive}: cannot be unpacked: {error}") from error
    if left:
        raise FetchError(f"{archive}: has no {', '.join(sorted(left))}")


def take_from(data_set, source, target, wanted):
    """Installs the wanted files from a folder, or from the official archive."""
    if not source.exists():
        raise FetchError(f"{source}: no such file or folder")
    folders = [source] + [source / name for name in data_set.inside]
    lost = []
    for name in wanted:
        forms = [name + end for end in ("", ".gz", ".xz")]
        forms += [data_set.packed_as[name]] if name in data_set.packed_as else []
        found = next((folder / form for folder in folders for form in forms
                      if (folder / form).is_file()), None)
        if found is None:
            lost.append(name)
        else:
            install(data_set, name, found, target)
    if lost:
        archive = source / data_set.downloads[0].name if source.is_dir() else source
        if not data_set.archive or not archive.is_file():
            raise FetchError(
                f"{source}: has no {', '.join(lost)} (looked for the files plain, .gz and .xz, in "
                f"this folder{''.join(', ' + name for name in data_set.inside)}"
                + (f", and for {data_set.downloads[0].name})" if data_set.archive else ")"))
        with open(archive, "rb") as stream:
            check(archive, data_set.downloads[0].sha256, sha256_of(stream))
        unpack_archive(data_set, archive, target, lost)


def install(data_set, name, found, target):
    """One file: a .gz that ada-train can read stays packed, anything else is unpacked."""
    expected = data_set.files[name]
    if found.suffix == ".gz" and not data_set.archive:
        check(found, expected, content_sha256(found))
        if (target / name).exists():
            (target / name).unlink()  # a damaged plain file, which would be read first
        with open(found, "rb") as stream, written_beside(target / f"{name}.gz") as out:
            shutil.copyfileobj(stream, out, PIECE)
        return
    try:
        stream = open_plain(found)
    except OSError as error:
        raise FetchError(f"{found}: cannot be read: {error.strerror}") from error
    with stream:
        write_checked(stream, found, expected, target / name)


def take_from_network(data_set, target, wanted, arguments):
    for download in data_set.downloads:
        if not data_set.archive and download.name.removesuffix(".gz") not in wanted:
            continue
        part = fetch(download, target, arguments.url, arguments.retries, arguments.retry_wait)
        whole = target / download.name
        os.replace(part, whole)
        if data_set.archive:
            try:
                unpack_archive(data_set, whole, target, wanted)
            finally:
                whole.unlink()
        else:
            (target / download.name.removesuffix(".gz")).unlink(missing_ok=True)


@contextlib.contextmanager
def alone_in(target):
    """Keeps a second fetch.py out of the folder, for as long as this process lives."""
    handle = os.open(target, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise FetchError(f"{target}: another fetch.py works here; wait for it") from error
    finally:
        os.close(handle)


def files_of(data_set):
    return {"camvid": trees.camvid_files, "voc": trees.voc_files}[data_set.kind]


def check_tree(data_set, folder):
    """What a folder holds; LayoutError where it is damaged."""
    if data_set.kind == "camvid":
        return trees.check_camvid(trees.camvid_root(folder))
    return trees.check_voc_years(folder)


def list_of_files(name, target):
    """Where a call that downloads a set of many files says what it has put into `target`."""
    return target / f".fetched-{name}"


def is_whole(name, target):
    """Whether all files that an earlier call put there are there in their sizes."""
    try:
        files = json.loads(list_of_files(name, target).read_text(encoding="utf-8"))
        return all((target / path).stat().st_size == size for path, size in files.items())
    except (OSError, ValueError, AttributeError):
        return False


def install_tree(data_set, source, target):
    """Copies a checked folder's files to `target`; what is there already, and the same, stays."""
    told = check_tree(data_set, source)
    for path, name in files_of(data_set)(source):
        place = target / name
        if place.is_file() and filecmp.cmp(path, place, shallow=False):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "rb") as stream, written_beside(place) as out:
            shutil.copyfileobj(stream, out, PIECE)
    return told


def unpack_tree(archive, folder):
    """The regular files of a .tar or .tar.gz below `folder`, none outside it."""
    say(f"unpacking {archive}")
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = pathlib.PurePosixPath(member.name)
                if not member.isfile() or name.is_absolute() or ".." in name.parts:
                    continue
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                with tar.extractfile(member) as stream, open(folder / name, "wb") as out:
                    shutil.copyfileobj(stream, out, PIECE)
    except DAMAGED as error:
        raise FetchError(f"{archive}: cannot be unpacked: {error}") from error


def run_tree(data_set, target, arguments):
    if arguments.source:
        source = pathlib.Path(arguments.source)
        if not source.is_dir():
            raise FetchError(f"{source}: no such folder")
        return install_tree(data_set, source, target)
    if is_whole(arguments.dataset, target):
        return "complete, nothing to do"
    unpacked = target / ".unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    try:
        parts = [fetch_archive(archive, target, arguments.url, arguments.retries,
                               arguments.retry_wait) for archive in data_set.archives]
        source = unpacked / "VOCdevkit" if data_set.kind == "voc" else unpacked
        try:
            for part in parts:
                unpack_tree(part, unpacked)
            told = install_tree(data_set, source, target)
        except (FetchError, trees.LayoutError) as error:
            # What is wrong is the archive, but where a disk is full or a file cannot be written.
            if getattr(error.__cause__, "errno", None) is None:
                for part in parts:
                    part.unlink()
            raise
        sizes = {str(name): path.stat().st_size for path, name in files_of(data_set)(source)}
        with written_beside(list_of_files(arguments.dataset, target)) as out:
            out.write(json.dumps(sizes).encode())
        for part in parts:
            part.unlink()
        return told
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)


def run(arguments, catalog):
    data_set = catalog[arguments.dataset]
    target = pathlib.Path(arguments.to) if arguments.to else data_root() / data_set.folder
    created = [folder for folder in (target, *target.parents) if not folder.exists()]
    target.mkdir(parents=True, exist_ok=True)
    try:
        with alone_in(target):
            if isinstance(data_set, TreeSet):
                print(f"{target}: {arguments.dataset}: {run_tree(data_set, target, arguments)}")
                return
            wanted = missing_files(data_set, target)
            if not wanted:
                print(f"{target}: {arguments.dataset} is complete and verified, nothing to do")
                return
            if arguments.source:
                take_from(data_set, pathlib.Path(arguments.source), target, wanted)
            else:
                take_from_network(data_set, target, wanted, arguments)
            still = missing_files(data_set, target)
            if still:
                raise FetchError(f"{target}: still without {', '.join(still)}")
            print(f"{target}: {arguments.dataset} is complete and verified")
    finally:
        with contextlib.suppress(OSError):  # only those of which nothing came
            for folder in created:
                folder.rmdir()


def parse(argv, catalog):
    parser = argparse.ArgumentParser(
        prog="fetch.py", description="Fetches and checks a public data set for ada-train.",
        epilog="examples:\n  ada-train fetch cifar10\n  ada-train fetch fashion_mnist "
               "--from /usr/share/datasets/fashion-mnist",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=list(catalog), metavar="DATASET",
                        help="one of " + ", ".join(catalog))
    parser.add_argument("--from", dest="source", metavar="FOLDER",
                        help="take the files from here (plain, .gz or .xz, or the official "
                             "archive) and not from the network")
    parser.add_argument("--to", metavar="FOLDER", help="where they go (default: <name> in $ADA_DATA, or in data/)")
    parser.add_argument("--url", metavar="URL",
                        help="download from this folder of a server (a mirror of your own)")
    parser.add_argument("--retries", type=int, default=4, help=argparse.SUPPRESS)
    parser.add_argument("--retry-wait", type=float, default=1.0, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv=None, catalog=None):
    catalog = catalog or CATALOG
    arguments = parse(argv, catalog)
    try:
        run(arguments, catalog)
        return 0
    except (FetchError, trees.LayoutError) as error:
        say(error)
        if not arguments.source:
            say("without a network: --from FOLDER takes the files from a folder"
                + (f". {catalog[arguments.dataset].hint}"
                   if catalog[arguments.dataset].hint else ""))
        return 3
    except OSError as error:
        say(f"{error.filename or arguments.to or data_root()}: {error.strerror or error}")
        return 3 if arguments.source and str(error.filename).startswith(arguments.source) else 6
    except KeyboardInterrupt:
        say("stopped; the same command goes on where this one was")
        return 130


if __name__ == "__main__":
    sys.exit(main())
