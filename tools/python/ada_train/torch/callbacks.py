"""AdaLossScaled within Lightning and within Hugging Face's Trainer: a callback each, which scales
the model that the trainer has."""
import weakref

from ada_train.torch.scaled import AdaLossScaled


class _Scaling:
    """What both callbacks do. `options`: those of AdaLossScaled."""

    def __init__(self, policy, options):
        self._policy, self._options = policy, options
        self.model = None  # AdaLossScaled, while the training goes on

    def begin(self, model):
        self.model = AdaLossScaled(model, self._policy, **self._options)

    def before_step(self, optimizer, epoch):
        """Behind the backward passes of an update: one whose gradients are not finite is left out,
        by taking its gradients away."""
        if not self.model.update(optimizer, epoch=epoch):
            optimizer.zero_grad(set_to_none=True)

    def end(self, status):
        if self.model is not None:
            self.model.close(status)
            self.model.remove()
            self.model = None


def _network_of(module, name):
    """The part of a LightningModule whose forward is the network's."""
    if name is not None:
        return module.get_submodule(name)
    inner = [child for child in module.children() if any(True for _ in child.parameters())]
    if len(inner) != 1:
        raise ValueError(f"{type(module).__name__} has {len(inner)} parts with parameters; "
                         "expected network=, the name of the one that is scaled")
    return inner[0]


def lightning_callback(policy=None, network=None, **options):
    """A lightning.Callback: Trainer(callbacks=[lightning_callback({...}, folder="runs/mine")]).
    For automatic optimization, with precision 32-true, bf16-mixed, bf16-true or 16-true. network:
    the attribute of the LightningModule that holds the network, where it has several."""
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback

    class AdaLossCallback(Callback):
        def __init__(self):
            self.scaling = _Scaling(policy, options)

        def on_fit_start(self, trainer, pl_module):
            if getattr(trainer.precision_plugin, "scaler", None) is not None:
                raise ValueError("precision 16-mixed has a GradScaler of its own; expected "
                                 "16-true, bf16-mixed or 32-true beside AdaLossScaled")
            if not pl_module.automatic_optimization:
                raise ValueError("lightning_callback scales losses of automatic optimization; "
                                 "otherwise wrap the network by AdaLossScaled")
            scaling = self.scaling
            scaling.begin(_network_of(pl_module, network))
            backward = type(pl_module).backward
            module = weakref.proxy(pl_module)

            def scaled(loss, *args, **kwargs):
                return backward(module, scaling.model.scale(loss), *args, **kwargs)
            pl_module.backward = scaled

        def on_before_optimizer_step(self, trainer, pl_module, optimizer):
            self.scaling.before_step(optimizer, trainer.current_epoch + 1)

        def on_fit_end(self, trainer, pl_module):
            self._end(pl_module, "finished")

        def on_exception(self, trainer, pl_module, exception):
            self._end(pl_module, "interrupted")

        def _end(self, pl_module, status):
            pl_module.__dict__.pop("backward", None)
            self.scaling.end(status)

        def state_dict(self):
            model = self.scaling.model
            return {} if model is None else model.scaling_state()

        def load_state_dict(self, state):
            if state and self.scaling.model is not None:
                self.scaling.model.load_scaling_state(state)
    return AdaLossCallback()


def transformers_callback(policy=None, **options):
    """A transformers.TrainerCallback: Trainer(callbacks=[transformers_callback({...})]). The
    model's own loss is scaled, that of its output's `loss`; with fp16=False."""
    from transformers import TrainerCallback

    class AdaLossCallback(TrainerCallback):
        def __init__(self):
            self.scaling, self._hook = _Scaling(policy, options), None

        def on_train_begin(self, args, state, control, model=None, **_):
            if args.fp16:
                raise ValueError("fp16=True has a GradScaler of its own; expected bf16=True, or "
                                 "neither, beside AdaLossScaled")
            self.scaling.begin(model)
            scaling = self.scaling

            def scale(module, _, output):
                if not module.training:
                    return None
                if not hasattr(output, "get"):
                    raise ValueError("the model's output has no name `loss`; expected "
                                     "return_dict=True beside AdaLossScaled")
                if output.get("loss") is None:
                    return None
                output["loss"] = scaling.model.scale(output["loss"])
                return output
            self._hook = model.register_forward_hook(scale)

        def on_pre_optimizer_step(self, args, state, control, optimizer=None, **_):
            self.scaling.before_step(optimizer, int(state.epoch or 0) + 1)

        def on_train_end(self, args, state, control, **_):
            if self._hook is not None:
                self._hook.remove()
                self._hook = None
            self.scaling.end("finished")
    return AdaLossCallback()
