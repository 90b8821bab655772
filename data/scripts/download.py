"""Downloads files that are checked by a sum, and goes on where a broken download stopped.

Only Python's standard library is used.
"""
import contextlib
import hashlib
import http.client
import socket
import ssl
import sys
import time
import urllib.error
import urllib.request

from catalog import Download

PIECE = 1 << 20  # bytes read at a time


class FetchError(Exception):
    """Ends the program with a message and exit code 1."""


class BrokenDownload(Exception):
    """A download that may go on after a pause."""


def say(text):
    print(f"fetch.py: {text}", file=sys.stderr)


def mebibytes(size):
    return f"{size / (1 << 20):.1f} MiB"


class Progress:
    """A line that is rewritten on a terminal; silent elsewhere."""

    def __init__(self, name, total):
        self.name, self.total = name, total
        self.begin, self.drawn = time.monotonic(), 0.0
        self.first = None

    def show(self, done):
        now = time.monotonic()
        if self.first is None:
            self.first = done
        if sys.stderr.isatty() and now - self.drawn > 0.2:
            self.drawn = now
            speed = (done - self.first) / max(now - self.begin, 1e-3)
            share = f" of {mebibytes(self.total)}  {100 * done // self.total} %" if self.total else ""
            print(f"\r{self.name}  {mebibytes(done)}{share}  {mebibytes(speed)}/s ", end="",
                  file=sys.stderr, flush=True)

    def end(self):
        if self.drawn:
            print(file=sys.stderr)


def pieces(stream):
    while True:
        piece = stream.read(PIECE)
        if not piece:
            return
        yield piece


def sha256_of(stream):
    digest = hashlib.sha256()
    for piece in pieces(stream):
        digest.update(piece)
    return digest.hexdigest()


def check(name, expected, found):
    if found != expected:
        raise FetchError(f"{name}: wrong SHA-256: expected {expected}, got {found}")


def request(url, start):
    headers = {"User-Agent": "ada-train-fetch/1", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30)


@contextlib.contextmanager
def network_errors(url):
    """BrokenDownload for what may be mended by another try, FetchError for what is not."""
    try:
        yield
    except urllib.error.HTTPError as error:
        if error.code < 500 and error.code not in (408, 429):
            raise FetchError(f"{url}: {error.code} {error.reason}") from error
        raise BrokenDownload(f"{error.code} {error.reason}") from error
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError,
            TimeoutError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, (socket.gaierror, ssl.SSLCertVerificationError)):
            raise FetchError(f"{url}: {reason}") from error
        raise BrokenDownload(str(reason)) from error
    except ValueError as error:  # no URL
        raise FetchError(f"{url}: {error}") from error


def continue_download(url, download, part):
    """Appends to `part` what it lacks, or begins it anew where the size is not known (0).
    BrokenDownload where it stops early."""
    start = part.stat().st_size if part.exists() and download.size else 0
    if download.size and start >= download.size:
        return
    with network_errors(url), request(url, start) as response:
        resumed = response.status == 206 and response.headers.get(
            "Content-Range", "").startswith(f"bytes {start}-")
        done = start if resumed else 0
        progress = Progress(download.name, download.size)
        with open(part, "ab" if resumed else "wb") as out:
            for piece in pieces(response):
                out.write(piece)
                done += len(piece)
                progress.show(done)
                if download.size and done > download.size:
                    break
        progress.end()
    if done < download.size:
        raise BrokenDownload(f"stopped at byte {done} of {download.size}")


def download_all_of(url, download, part, retries, wait):
    """Fills `part`, with pauses that double. True where all of it came in one piece."""
    for attempt in range(retries + 1):
        one_piece = not part.exists() or part.stat().st_size == 0
        try:
            continue_download(url, download, part)
            return one_piece
        except BrokenDownload as error:
            if attempt == retries:
                raise FetchError(f"{url}: {error}") from error
            say(f"{url}: {error}; trying again")
            time.sleep(wait * 2 ** attempt)
    raise AssertionError("the last attempt returns or raises")


def download_from(url, download, part, retries, wait):
    """The whole file into `part`, checked. Stops at a wrong checksum, with nothing left behind."""
    while True:
        one_piece = download_all_of(url, download, part, retries, wait)
        with open(part, "rb") as stream:
            found = sha256_of(stream)
        if found == download.sha256:
            return
        part.unlink()
        if one_piece:
            check(url, download.sha256, found)
        say(f"{url}: what an earlier download left is damaged; starting over")


def fetch(download, target, base, retries, wait):
    """Downloads one file into `target`/NAME.part, from the first site that has it, or `base`."""
    part = target / f"{download.name}.part"
    problems = []
    for site in (base,) if base else download.bases:
        url = site.rstrip("/") + "/" + download.name
        say(f"downloading {url} ({mebibytes(download.size)})")
        try:
            download_from(url, download, part, retries, wait)
            return part
        except FetchError as error:
            problems.append(str(error))
    raise FetchError("\n".join(problems))


def size_on_server(url):
    try:
        with urllib.request.urlopen(urllib.request.Request(
                url, method="HEAD", headers={"User-Agent": "ada-train-fetch/1"}),
                timeout=30) as response:
            return int(response.headers.get("Content-Length") or 0)
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError,
            ValueError) as error:
        raise FetchError(f"{url}: {error}") from error


def fetch_archive(archive, target, base, retries, wait):
    """Downloads an archive into `target`, from `base` if given; by its MD5 where one is known."""
    name = archive.url.rsplit("/", 1)[-1]
    url = base.rstrip("/") + "/" + name if base else archive.url
    part = target / f"{name}.part"
    size = size_on_server(url)
    say(f"downloading {url}" + (f" ({mebibytes(size)})" if size else ""))
    download_all_of(url, Download(name, size, "", ()), part, retries, wait)
    if not archive.md5:
        say(f"{name}: nobody publishes a checksum of this file, its content is checked instead")
        return part
    digest = hashlib.md5(usedforsecurity=False)
    with open(part, "rb") as stream:
        for piece in pieces(stream):
            digest.update(piece)
    if digest.hexdigest() != archive.md5:
        part.unlink()
        raise FetchError(f"{url}: wrong MD5: expected {archive.md5}, got {digest.hexdigest()}")
    return part
