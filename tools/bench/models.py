"""The networks of the benchmark: which configuration ada-train trains each with. PyTorch's versions
of the same networks are in torch_networks.py, by the same names."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Model:
    title: str
    config: str  # from the tree's root
    network: tuple = ()  # --set values that choose the network, where it is not the configuration's
    images: int = 0  # in one measurement of ada-train: some seconds on two cores; 0: too slow there
    cuda_images: int = 0  # the same on a GPU
    batch: int = 128  # where none is asked for
    tokens: int = 0  # of a sequence, where these are what speed counts; 0: images are
    # The optimizer and the first scale are the configuration's, and layers have the same names in
    # both programs.
    transformer: bool = False
    usual: bool = True  # False: on a processor it is measured only where it is named
    first_layer: str = "conv1"  # whose x is the batch

    def steps(self, batch, device="cpu"):
        """Steps of one measurement of ada-train."""
        return max(10, (self.cuda_images if device == "cuda" else self.images) // batch)

    def unit(self):
        """What speed counts."""
        return "tokens/s" if self.tokens else "images/s"

    def units(self):
        """How many of these a sample has."""
        return self.tokens or 1

    def policy(self, values):
        """The --set values of a policy as this model takes them."""
        adaptive = any("policy: adaptive" in value for value in values)
        return (*values, "scaling.init_scale=auto") if self.transformer and adaptive else values


RESNET20 = "configs/resnet20_cifar.yaml"
RESNET50 = "configs/resnet50_synthetic.yaml"
MLP = "configs/mlp_mnist_fashion.yaml"
GPT2 = Model("GPT-2, 4 layers, width 128", "configs/gpt2_jargon.yaml", ("model.vocabulary=256",), 1600,
             160000, batch=16, tokens=128, transformer=True, usual=False)
MODELS = {  # title, configuration, network, images on a processor and on a GPU
    "resnet20": Model("ResNet-20", RESNET20, (), 25600, 1280000),
    "resnet56": Model("ResNet-56", RESNET20, ("model={zoo: resnet56, shortcut: A}",), 7680, 384000),
    "vgg16": Model("VGG-16", RESNET20, ("model={zoo: vgg16}",), 2560, 384000),
    "fashion": Model("Fashion-MNIST net", "configs/fashion_quickstart.yaml", (), 192000, 1280000),
    "lenet": Model("LeNet-5", "configs/lenet_fashion.yaml", (), 256000, 1280000),
    "mlp": Model("MLP 784-256-128-10", MLP, (), 512000, 1280000, first_layer="fc1"),
    "mlp512": Model("MLP 784-512-512-10", MLP, ("model={zoo: mlp, hidden: [512, 512]}",), 192000,
                    usual=False, first_layer="fc1"),
    "resnet18": Model("ResNet-18", RESNET50, ("model={zoo: resnet18, classes: 1000}",), batch=32),
    "mobilenet_v2": Model("MobileNetV2", RESNET50, ("model={zoo: mobilenet_v2, classes: 1000}",),
                          batch=32),
    "segnet_basic": Model("SegNet-Basic, half width", "configs/segnet_camvid_quick.yaml", batch=4),
    "resnet50": Model("ResNet-50", RESNET50, cuda_images=38400),
    "gpt2_jargon": GPT2,
    "gpt2_jargon_tanh": dataclasses.replace(GPT2, title="GPT-2, PyTorch's GELU by tanh as well"),
    "vit_cifar": Model("ViT, 6 layers, width 128", "configs/vit_cifar.yaml", ("model.classes=10",),
                       3840, 384000, transformer=True, usual=False),
}


def usual(device):
    """Names of the models that a device is measured with where none are named."""
    return (["resnet20", "resnet50"] if device == "cuda"
            else [name for name, model in MODELS.items() if model.images and model.usual])


def keeps_optimizer(config):
    """Whether a configuration is measured with its own optimizer."""
    return any(model.transformer for model in MODELS.values() if model.config == config)


def in_units(header, names):
    """A table's header with what the speeds of these models count."""
    units = ", ".join(sorted({MODELS[name].unit() for name in names}))
    return [units if cell == "images/s" else cell for cell in header]
