#!/usr/bin/python3
"""Tests of data/scripts/fetch.py against a server on this machine and tiny data sets made here."""
import contextlib
import dataclasses
import gzip
import hashlib
import http.server
import io
import lzma
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest
import unittest.mock

sys.dont_write_bytecode = True
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "data/scripts/fetch.py"
DEBIAN = pathlib.Path("/usr/share/datasets/fashion-mnist")
sys.path.insert(0, str(SCRIPT.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
import catalog as tables  # noqa: E402  (found only through the line above)
import fetch  # noqa: E402
import png_file  # noqa: E402


def sha(content):
    return hashlib.sha256(content).hexdigest()


PLAIN = {"a.bin": bytes(range(256)) * 300, "b.bin": b"labels" * 50}


def tar_of(files, mode="w:gz"):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


ARCHIVE = tar_of({"sub/readme.html": b"?", "../../evil": b"evil", "sub/a.bin": PLAIN["a.bin"],
                  "sub/b.bin": PLAIN["b.bin"]})
PACKED = {name: gzip.compress(content, mtime=0) for name, content in PLAIN.items()}


def deb_of(files):
    """A Debian package: an ar archive whose last member is a tar file."""
    package = b"!<arch>\n"
    for name, content in (("debian-binary", b"2.0\n"), ("control.tar.xz", b"odd"),
                          ("data.tar.xz", tar_of(files, "w:xz"))):
        package += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        package += content + b"\n" * (len(content) % 2)
    return package


TEXT = b"hacker, n.\n" * 100
DEB = deb_of({"./usr/share/dictd/words.index": b"?", "./usr/share/dictd/words.dict.dz":
              gzip.compress(TEXT, mtime=0)})


def download(name, content):
    return tables.Download(name, len(content), sha(content), ("http://127.0.0.1:1/nobody",))


SUMS = {name: sha(content) for name, content in PLAIN.items()}
CATALOG = {
    "tarred": tables.DataSet("tarred", SUMS, (download("all.tar.gz", ARCHIVE),), ("sub",), True),
    "gzipped": tables.DataSet("gzipped", SUMS,
                             tuple(download(f"{name}.gz", PACKED[name]) for name in PLAIN),
                             ("raw",), False, "a hint"),
    "text": tables.DataSet("text", {"words.txt": sha(TEXT)}, (download("words.deb", DEB),), (), True,
                           "a hint", {"words.txt": "words.dict.dz"}),
}


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `files`; `faults` maps a path to what goes wrong in its next requests."""

    files, faults, log = {}, {}, []

    def do_GET(self):
        name = self.path.rsplit("/", 1)[-1]
        asked = self.headers.get("Range")
        self.log.append((name, asked))
        fault = self.faults.get(name, []).pop(0) if self.faults.get(name) else None
        content = self.files.get(name)
        if content is None or fault in (404, 503):
            self.send_error(fault or 404)
            return
        start = int(asked[6:].rstrip("-")) if asked and fault != "no range" else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range",
                             f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        stop = fault[1] if isinstance(fault, tuple) else len(content)
        self.wfile.write(content[start:stop])

    def log_message(self, *_):
        pass


class FetchTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.target = self.root / "to" / "here"
        Handler.files = {"all.tar.gz": ARCHIVE, "words.deb": DEB, **{f"{n}.gz": c for n, c in PACKED.items()}}
        Handler.faults, Handler.log = {}, []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/data/"

    def run_fetch(self, *arguments, url=True):
        """(exit code, what it said) of fetch.py with the tiny catalog."""
        said = io.StringIO()
        more = ["--to", str(self.target), "--retry-wait", "0.01"]
        more += ["--url", self.url] if url else []
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            code = fetch.main([*arguments, *more], CATALOG)
        return code, said.getvalue()

    def names(self):
        return sorted(p.name for p in self.target.iterdir()) if self.target.exists() else None

    def assert_complete(self, code, said):
        self.assertEqual(code, 0, said)
        self.assertIn("is complete and verified", said)
        for name, content in PLAIN.items():
            if (self.target / name).exists():
                self.assertEqual((self.target / name).read_bytes(), content)
            else:
                self.assertEqual((self.target / f"{name}.gz").read_bytes(), PACKED[name])

    def assert_refused(self, code, said, *words, expect=3):
        self.assertEqual(code, expect, said)
        for word in words:
            self.assertIn(str(word), said)


class Download(FetchTest):
    def test_archive_and_idempotence(self):
        self.assert_complete(*self.run_fetch("tarred"))
        self.assertEqual(self.names(), ["a.bin", "b.bin"])
        self.assertFalse((self.root / "evil").exists())
        requests = len(Handler.log)
        code, said = self.run_fetch("tarred")
        self.assertEqual((code, len(Handler.log)), (0, requests))
        self.assertIn("nothing to do", said)

    def test_single_files_stay_packed(self):
        self.assert_complete(*self.run_fetch("gzipped"))
        self.assertEqual(self.names(), ["a.bin.gz", "b.bin.gz"])

    def test_a_text_in_a_debian_package(self):
        code, said = self.run_fetch("text")
        self.assertEqual(code, 0, said)
        self.assertEqual(self.names(), ["words.txt"])
        self.assertEqual((self.target / "words.txt").read_bytes(), TEXT)
        self.assertIn("nothing to do", self.run_fetch("text")[1])

    def test_a_package_without_files(self):
        broken = DEB.replace(b"data.tar.xz", b"else.tar.xz")
        Handler.files["words.deb"] = broken
        catalog = dataclasses.replace(CATALOG["text"], downloads=(download("words.deb", broken),))
        with unittest.mock.patch.dict(CATALOG, {"text": catalog}):
            self.assert_refused(*self.run_fetch("text"), "no Debian package with data.tar")

    def test_only_what_is_damaged_is_fetched_again(self):
        self.run_fetch("gzipped")
        Handler.log.clear()
        for damage in (PACKED["b.bin"][:-3], b"", gzip.compress(b"other")):
            with self.subTest(damage=damage[:4]):
                (self.target / "b.bin.gz").write_bytes(damage)
                self.assert_complete(*self.run_fetch("gzipped"))
        self.assertEqual(Handler.log, [("b.bin.gz", None)] * 3)

    def test_a_damaged_plain_file_gives_way(self):
        self.target.mkdir(parents=True)
        (self.target / "a.bin").write_bytes(b"damaged")
        self.assert_complete(*self.run_fetch("gzipped"))
        self.assertEqual(self.names(), ["a.bin.gz", "b.bin.gz"])

    def test_goes_on_after_a_break(self):
        Handler.faults = {"all.tar.gz": [("stop", 100), ("stop", 150), 503]}
        self.assert_complete(*self.run_fetch("tarred"))
        self.assertEqual([asked for _, asked in Handler.log],
                         [None, "bytes=100-", "bytes=150-", "bytes=150-"])

    def test_goes_on_in_the_next_call(self):
        Handler.faults = {"all.tar.gz": [("stop", 200)] * 2}
        code, said = self.run_fetch("tarred", "--retries", "0")
        self.assert_refused(code, said, f"stopped at byte 200 of {len(ARCHIVE)}")
        self.assertEqual(self.names(), ["all.tar.gz.part"])
        Handler.faults = {}
        self.assert_complete(*self.run_fetch("tarred"))
        self.assertEqual([asked for _, asked in Handler.log], [None, "bytes=200-"])
        self.assertEqual(self.names(), ["a.bin", "b.bin"])

    def test_a_server_that_cannot_resume(self):
        Handler.faults = {"all.tar.gz": [("stop", 100), "no range"]}
        self.assert_complete(*self.run_fetch("tarred"))

    def test_a_damaged_part_is_dropped(self):
        self.target.mkdir(parents=True)
        for part in (b"x" * 50, b"x" * len(ARCHIVE), b"x" * (len(ARCHIVE) + 9)):
            with self.subTest(size=len(part)):
                (self.target / "all.tar.gz.part").write_bytes(part)
                self.assert_complete(*self.run_fetch("tarred"))
                for name in PLAIN:
                    (self.target / name).unlink()

    def test_wrong_checksum(self):
        for wrong in (ARCHIVE[:-1] + b"x", ARCHIVE + b"more"):
            with self.subTest(size=len(wrong)):
                Handler.files["all.tar.gz"] = wrong
                code, said = self.run_fetch("tarred")
                self.assert_refused(code, said, "all.tar.gz: wrong SHA-256: expected",
                                    sha(ARCHIVE), ", got ")
                self.assertIsNone(self.names())

    def test_not_found_and_nobody_there(self):
        del Handler.files["all.tar.gz"]
        code, said = self.run_fetch("tarred")
        self.assert_refused(code, said, "all.tar.gz: 404", "--from FOLDER")
        self.assertEqual(len(Handler.log), 1)
        code, said = self.run_fetch("gzipped", "--retries", "1", url=False)
        self.assert_refused(code, said, "refused", "a hint")
        self.assertIsNone(self.names())

    def test_two_at_a_time(self):
        self.target.mkdir(parents=True)
        with fetch.alone_in(self.target):
            self.assert_refused(*self.run_fetch("tarred"), "another fetch.py works here")


class FromFolder(FetchTest):
    def offer(self, **files):
        source = self.root / "source"
        for name, content in files.items():
            path = source / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return str(source)

    def test_every_form(self):
        a, b = PLAIN["a.bin"], PLAIN["b.bin"]
        xz = lzma.compress
        for dataset, files in (("tarred", dict(a_bin=a, b_bin=b)),
                               ("tarred", dict(a_bin_xz=xz(a), sub__b_bin_gz=gzip.compress(b))),
                               ("tarred", dict(all_tar_gz=ARCHIVE)),
                               ("tarred", dict(sub__a_bin=a, all_tar_gz=ARCHIVE)),
                               ("gzipped", dict(a_bin_gz=PACKED["a.bin"], raw__b_bin=b)),
                               ("gzipped", dict(a_bin_xz=xz(a), b_bin=b))):
            with self.subTest(dataset=dataset, files=list(files)):
                source = self.offer(**files)
                self.assert_complete(*self.run_fetch(dataset, "--from", source, url=False))
                self.assertEqual(len(self.names()), 2)
                shutil.rmtree(source)
                shutil.rmtree(self.target)
        self.assertEqual(Handler.log, [])

    def test_a_text_as_a_dictionary_has_it(self):
        packed = gzip.compress(TEXT)
        for files in (dict(words_txt=TEXT), dict(words_txt_gz=packed), dict(words_dict_dz=packed),
                      dict(words_deb=DEB)):
            with self.subTest(files=list(files)):
                source = self.offer(**files)
                code, said = self.run_fetch("text", "--from", source, url=False)
                self.assertEqual(code, 0, said)
                self.assertEqual((self.target / "words.txt").read_bytes(), TEXT)
                shutil.rmtree(source)
                shutil.rmtree(self.target)

    def test_the_archive_itself(self):
        source = self.offer(all_tar_gz=ARCHIVE) + "/all.tar.gz"
        self.assert_complete(*self.run_fetch("tarred", "--from", source))

    def test_refused(self):
        a, b = PLAIN["a.bin"], PLAIN["b.bin"]
        wrong = f"wrong SHA-256: expected {SUMS['b.bin']}, got {sha(b'other')}"
        for dataset, files, words in (
                ("tarred", dict(a_bin=a), ("has no b.bin", "all.tar.gz")),
                ("gzipped", dict(a_bin=a), ("has no b.bin", "raw")),
                ("tarred", dict(b_bin=b"other"), ("b.bin", wrong)),
                ("gzipped", dict(b_bin_gz=gzip.compress(b"other")), ("b.bin.gz", wrong)),
                ("tarred", dict(b_bin_xz=lzma.compress(b)[:-9]), ("b.bin.xz: cannot be",)),
                ("gzipped", dict(b_bin_gz=PACKED["b.bin"][:-9]), ("b.bin.gz: cannot be",)),
                ("tarred", dict(all_tar_gz=ARCHIVE[:-9]), ("all.tar.gz: wrong SHA-256",))):
            with self.subTest(dataset=dataset, files=list(files)):
                # b.bin first, so that nothing good is there before the bad one is met.
                catalog = dataclasses.replace(
                    CATALOG[dataset], files=dict(sorted(SUMS.items(), reverse=True)))
                source = self.offer(**files)
                with unittest.mock.patch.dict(CATALOG, {dataset: catalog}):
                    code, said = self.run_fetch(dataset, "--from", source)
                self.assert_refused(code, said, *words)
                self.assertIn(self.names(), (None, ["a.bin"]))
                shutil.rmtree(source)
                shutil.rmtree(self.target, ignore_errors=True)

    def test_no_such_folder(self):
        self.assert_refused(*self.run_fetch("tarred", "--from", "/no/such"), "/no/such: no such")
        self.assertFalse(self.target.parent.exists())

    def test_target_is_a_file(self):
        self.target.parent.mkdir(parents=True)
        self.target.write_bytes(b"")
        self.assert_refused(*self.run_fetch("tarred"), self.target, expect=6)


class CommandLine(unittest.TestCase):
    def call(self, *arguments):
        return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, check=False)

    def test_usage(self):
        self.assertEqual(self.call("--help").returncode, 0)
        for wrong in ((), ("cifar11",), ("mnist", "--form", "x")):
            self.assertEqual(self.call(*wrong).returncode, 2, wrong)

    def test_the_table(self):
        for name, data_set in fetch.CATALOG.items():
            if isinstance(data_set, tables.TreeSet):
                for archive in data_set.archives:
                    self.assertRegex(archive.md5, "^([0-9a-f]{32})?$")
                continue
            sums = list(data_set.files.values()) + [d.sha256 for d in data_set.downloads]
            self.assertEqual({len(s) for s in sums}, {64}, name)
            self.assertEqual(len(set(sums)), len(sums), name)
            if not data_set.archive:
                self.assertEqual([d.name for d in data_set.downloads],
                                 [f"{file}.gz" for file in data_set.files])

    @unittest.skipUnless(DEBIAN.is_dir(), "Debian's dataset-fashion-mnist is not installed")
    def test_debian_package(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.call("fashion_mnist", "--from", str(DEBIAN), "--to", folder)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            refused = self.call("mnist", "--from", str(DEBIAN), "--to", folder + "/mnist")
            self.assertEqual(refused.returncode, 3)
            self.assertIn("wrong SHA-256", refused.stderr)


def png(width, height, rows, kind=png_file.GREY):
    """`rows`: each with the filter before it."""
    return png_file.png(width, height, rows, kind, filtered=True)


XML = ("<annotation><size><width>4</width><height>3</height></size><object><name>a</name><bndbox>"
       "<xmin>1</xmin><ymin>1</ymin><xmax>3</xmax><ymax>2</ymax></bndbox></object></annotation>")


class TreesTest(unittest.TestCase):
    """Data sets of many files: what --from checks, and what it copies."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.picture = png(4, 3, (b"\0" + bytes(12)) * 3, 2)

    def put(self, name, content):
        path = self.folder / "from" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    def fetch(self, data_set):
        out, problems = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(problems):
            status = fetch.main([data_set, "--from", str(self.folder / "from"), "--to",
                                 str(self.folder / "to")])
        return status, out.getvalue() + problems.getvalue()

    def put_camvid(self, labels):
        for split in ("train", "val", "test"):
            self.put(f"CamVid/{split}/a.png", self.picture)
            self.put(f"CamVid/{split}annot/a.png", labels)

    def test_camvid_is_checked_to_the_last_label_and_copied(self):
        # Every filter of PNG: none, left, up, mean, Paeth.
        rows = bytes([0, 1, 2, 3, 11, 1, 5, 1, 1, 1, 2, 1, 0, 0, 0])
        self.put_camvid(png(4, 3, rows))
        status, text = self.fetch("camvid")
        self.assertEqual(status, 0, text)
        self.assertIn("1 train, 1 val, 1 test images", text)
        self.assertIn("not the published CamVid", text)
        self.assertEqual((self.folder / "to/trainannot/a.png").read_bytes(), png(4, 3, rows))
        self.put_camvid(png(4, 3, bytes([0, 1, 2, 3, 11] * 2 + [4, 5, 5, 5, 5])))
        status, text = self.fetch("camvid")
        self.assertEqual(status, 3)
        self.assertIn("label 16 is none of the classes", text)

    def test_a_damaged_copy_is_mended_by_another_call(self):
        rows = (b"\0" + bytes(4)) * 3
        self.put_camvid(png(4, 3, rows))
        self.assertEqual(self.fetch("camvid")[0], 0)
        copy = self.folder / "to/trainannot/a.png"
        whole = copy.read_bytes()
        copy.write_bytes(whole[:-1] + b"?")
        self.assertEqual(self.fetch("camvid")[0], 0)
        self.assertEqual(copy.read_bytes(), whole)

    def test_camvid_names_what_is_wrong(self):
        for labels, words in ((self.picture, "no label image"),
                              (png(3, 3, (b"\0" + bytes(3)) * 3), "3 x 3 pixels"),
                              (png(4, 3, b"\0\0"), "cut off"), (b"text", "is no PNG")):
            self.put_camvid(labels)
            status, text = self.fetch("camvid")
            self.assertEqual(status, 3)
            self.assertIn("trainannot/a.png", text)
            self.assertIn(words, text)
        shutil.rmtree(self.folder / "from/CamVid/testannot")
        self.put_camvid(png(4, 3, (b"\0" + bytes(4)) * 3))
        (self.folder / "from/CamVid/testannot/a.png").unlink()
        self.assertIn("has no label image", self.fetch("camvid")[1])

    def test_voc_is_checked_and_copied(self):
        for year in ("VOC2007", "VOC2012"):
            self.put(f"VOCdevkit/{year}/ImageSets/Main/trainval.txt", "a\n")
            self.put(f"VOCdevkit/{year}/JPEGImages/a.png", self.picture)
            self.put(f"VOCdevkit/{year}/Annotations/a.xml", XML)
        status, text = self.fetch("voc2007")
        self.assertEqual(status, 0, text)
        self.assertTrue((self.folder / "to/VOC2012/Annotations/a.xml").is_file())
        for content, words in (("<a", "a.xml"), (XML.replace("<name>a", "<name>"), "without name"),
                               (XML.replace(">4<", ">5<"), "size is 5 x 3"),
                               (XML.replace(">4<", ">four<"), "could not convert"),
                               ("<?xml version='1.0' encoding='gb2312'?>" + XML, "a.xml")):
            self.put("VOCdevkit/VOC2012/Annotations/a.xml", content)
            status, text = self.fetch("voc2012")
            self.assertEqual(status, 3)
            self.assertIn(words, text)
        (self.folder / "from/VOCdevkit/VOC2012/JPEGImages/a.png").unlink()
        self.assertIn("has no picture", self.fetch("voc2012")[1])


if __name__ == "__main__":
    unittest.main()
