"""Bare Debian trees for bare_debian_test.py: made by debootstrap with the mirror that this machine's
apt uses, entered by chroot. Each command has a mount and process namespace of its own, which go with
it however it ends: no mount and no process is left, and a tree is a folder that can be deleted.

ADA_BARE_TREES names a folder that keeps bare trees, their packages and compiled files, so that a
repeat is quick; without it all of them are temporary. ADA_BARE_MIRROR: another mirror than apt's.
"""
import os
import pathlib
import shutil
import subprocess
import unittest
import urllib.error
import urllib.request

# $0: the tree, $1: the kept folder, then a command.
ENTER = """set -e
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
mkdir -p "$0/kept" "$1/archives" "$1/ccache"
mount --bind "$1" "$0/kept"
shift
exec chroot "$0" "$@"
"""
PLAIN = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
         "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", "PYTHONDONTWRITEBYTECODE": "1",
         "CCACHE_DIR": "/kept/ccache"}
HOME = PLAIN["HOME"]  # of root, in a tree
PASSED_ON = ("http_proxy", "https_proxy", "no_proxy", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL",
             "PIP_DEFAULT_TIMEOUT")
CERTIFICATES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")


def needed():
    """Skips the test where this machine cannot make a tree."""
    if os.geteuid():
        raise unittest.SkipTest("bare trees take root (chroot, mounts)")
    for program in ("debootstrap", "unshare", "apt-get"):
        if not shutil.which(program):
            raise unittest.SkipTest(f"{program} is missing: tools/setup.sh --bare installs it")


def mirror():
    """The address that this machine's apt has Debian from."""
    named = os.environ.get("ADA_BARE_MIRROR")
    if named:
        return named
    told = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)"],
                          capture_output=True, text=True, check=True).stdout.split()
    found = [address for address in told if address.rstrip("/").endswith("/debian")]
    if not found:
        raise unittest.SkipTest("apt knows no mirror of Debian; ADA_BARE_MIRROR names one")
    return found[0]


def bare(release, kept):
    """The folder of a bare tree of `release` in `kept`, made where it is missing."""
    tree = kept / release / "tree"
    if tree.is_dir():
        return tree
    address = mirror()
    try:
        with urllib.request.urlopen(f"{address.rstrip('/')}/dists/{release}/InRelease", timeout=60):
            pass
    except (urllib.error.URLError, TimeoutError) as error:
        raise unittest.SkipTest(f"no bare {release}: the mirror does not answer: {error}")
    beside = tree.with_name("tree.new")
    shutil.rmtree(beside, ignore_errors=True)
    beside.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "debootstrap",
                           "--variant=minbase", release, str(beside), address],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"debootstrap {release}: {done.stdout[-2000:]}{done.stderr}")
    settings = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, text=True,
                              check=True).stdout.splitlines()
    (beside / "etc/apt/apt.conf.d/90machine").write_text("\n".join(
        ['Dir::Cache::Archives "/kept/archives";',
         *(line for line in settings if "IndexTargets" not in line and "Changelogs" not in line)]))
    # Nothing of a tree has to survive a power cut.
    (beside / "etc/dpkg/dpkg.cfg.d/test").write_text("force-unsafe-io\n")
    beside.rename(tree)
    return tree


class Tree:
    """A copy of a bare tree that a test may change."""

    def __init__(self, release, kept, folder):
        self.kept, self.folder = kept / release, pathlib.Path(folder)
        subprocess.run(["cp", "-a", str(bare(release, kept)), str(self.folder)], check=True)
        for name in ("/etc/hosts", "/etc/resolv.conf", "/etc/pip.conf"):
            if os.path.exists(name):
                shutil.copy(name, self.path(name))
        self.environment = {**PLAIN, **{key: os.environ[key] for key in PASSED_ON
                                        if key in os.environ}}
        if CERTIFICATES.is_file():  # a bare tree has none, and pip asks for them
            shutil.copy(CERTIFICATES, self.path("/etc/machine.pem"))
            self.environment["PIP_CERT"] = "/etc/machine.pem"

    def path(self, inside):
        """Where a path of the tree lies for this machine."""
        return self.folder / str(inside).lstrip("/")

    def run(self, *command, expect=0, cwd=HOME, user=0, network=True, **environment):
        """What a command in the tree said, stdout and stderr; another exit code is a failure."""
        words = ["env", "-C", cwd, *map(str, command)]
        if user:
            words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *words]
        enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child",
                 *([] if network else ["--net"]), "sh", "-c", ENTER, str(self.folder),
                 str(self.kept), *words]
        done = subprocess.run(enter, env={**self.environment, **environment}, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, errors="replace", check=False)
        if done.returncode != expect:
            raise AssertionError(f"{command}: exit code {done.returncode}, not {expect}:\n"
                                 f"{done.stdout[-8000:]}")
        return done.stdout

    def has(self, program):
        return self.run("sh", "-c", f"command -v {program} || echo none") != "none\n"

    def install(self, *packages):
        """By apt, with the mirror's lists of now; packages are names or .deb files."""
        self.run("apt-get", "update", "-q")
        self.run("apt-get", "install", "-q", "-y", *packages)

    def purge(self, *packages):
        self.run("apt-get", "purge", "-q", "-y", *packages)

    def remove_unneeded(self):
        """What came for packages that are gone; what others recommend (apt ca-certificates) or
        suggest was not in the bare tree."""
        self.run("apt-get", "autoremove", "-q", "-y", "--purge",
                 "-o", "APT::AutoRemove::RecommendsImportant=false",
                 "-o", "APT::AutoRemove::SuggestsImportant=false")

    def packages(self):
        """The names of what is installed."""
        return set(self.run("dpkg-query", "-W", "-f", "${Package}\n").split())

    def files(self, *without):
        """Every path of the tree but those below `without` and in folders of passing things."""
        passing = [self.path(name) for name in ("proc", "dev", "sys", "kept", "tmp", "run",
                                                "root", "home", "var/cache", "var/log",
                                                "var/lib/apt", "var/lib/dpkg", *without)]
        found = set()
        for folder, folders, names in os.walk(self.folder):
            here = pathlib.Path(folder)
            folders[:] = [name for name in folders
                          if here / name not in passing and name != "__pycache__"]
            found.update("/" + str((here / name).relative_to(self.folder))
                         for name in (*folders, *names))
        return found


def mounts_below(folder):
    """The mounts below `folder` that any process has."""
    found = set()
    for table in pathlib.Path("/proc").glob("[0-9]*/mountinfo"):
        try:
            found.update(line.split()[4] for line in table.read_text().splitlines())
        except (OSError, ValueError):
            pass  # a process that has ended
    return {point for point in found if point.startswith(str(folder))}
