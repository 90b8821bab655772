"""AdaLossScaled within Lightning and within Hugging Face's Trainer: a callback each, which scales
the model that the trainer has, and whose state its checkpoints hold."""
import weakref

from ada_train.torch.scaled import AdaLossScaled

_running = []  # of this process's trainings, those that are scaled


class _Scaling:
    """What both callbacks do. `options`: those of AdaLossScaled."""

    def __init__(self, policy, options):
        self._policy, self._options = policy, options
        self.model = None  # AdaLossScaled, while the training goes on
        self._state, self._loaded, self._of, self._losses = {}, False, None, 0

    def begin(self, model):
        """A model that was trained before goes on with its scales, another one where a state was
        loaded for it."""
        for other in list(_running):  # a trainer that failed does not say so to every callback
            if other is self or other.trains(model):
                other.end("interrupted")
        self.model = AdaLossScaled(model, self._policy, **self._options)
        _running.append(self)
        if self._state and (self._loaded or self._of is not None and self._of() is model):
            try:
                self.model.load_scaling_state(self._state)
            except BaseException:
                self.end("interrupted")
                raise
        self._of, self._loaded, self._losses = weakref.ref(model), False, 0

    def trains(self, model):
        return self.model is not None and self._of is not None and self._of() is model

    def scale(self, loss):
        self._losses += 1
        return self.model.scale(loss)

    def before_step(self, optimizer, epoch):
        """After the backward passes of an update: one whose gradients are not finite is left out,
        by taking its gradients away."""
        if not self._losses:
            raise RuntimeError("no loss of this update was scaled: its backward pass did not come "
                               "through the trainer's own backward(); expected a training step "
                               "that calls it, or the model in AdaLossScaled and its scale(loss)")
        self._losses = 0
        if not self.model.update(optimizer, epoch=epoch):
            optimizer.zero_grad(set_to_none=True)

    def state(self):
        return self._state if self.model is None else self.model.scaling_state()

    def load(self, state):
        """Trainers load before the model is scaled, or after it."""
        if not state:
            return
        if self.model is not None:
            self.model.load_scaling_state(state)
        else:
            self._state, self._loaded = state, True

    def end(self, status):
        if self in _running:
            _running.remove(self)
        if self.model is not None:
            self._state = self.model.scaling_state()
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
                return backward(module, scaling.scale(loss), *args, **kwargs)
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
            return self.scaling.state()

        def load_state_dict(self, state):
            self.scaling.load(state)
    return AdaLossCallback()


def transformers_callback(policy=None, **options):
    """A transformers.TrainerCallback: Trainer(callbacks=[transformers_callback({...})]), with
    fp16=False. Whatever loss the Trainer takes backwards is scaled: the model's own, one with
    label_smoothing_factor, of compute_loss_func or of a compute_loss of one's own. Its state lies
    in trainer_state.json of each checkpoint, and train(resume_from_checkpoint=...) goes on with it.
    """
    from accelerate import Accelerator
    from transformers import TrainerCallback
    from transformers.trainer_callback import ExportableState

    class AdaLossCallback(TrainerCallback, ExportableState):
        def __init__(self):
            self.scaling, self._plain = _Scaling(policy, options), None

        def on_train_begin(self, args, state, control, model=None, **_):
            if args.fp16:
                raise ValueError("fp16=True has a GradScaler of its own; expected bf16=True, or "
                                 "neither, beside AdaLossScaled")
            self._end()
            name = type(self).__name__
            kept = state.stateful_callbacks.setdefault(name, self.state())
            if state.global_step > 0 and isinstance(kept, dict):
                self.scaling.load(kept["attributes"]["scaling_state"])
            self.scaling.begin(model)
            self._scale_losses()

        def _scale_losses(self):
            plain, scaling = Accelerator.backward, self.scaling

            def backward(accelerator, loss, **kwargs):
                if scaling.model is not None and scaling.model.takes_part(loss):
                    loss = scaling.scale(loss)
                return plain(accelerator, loss, **kwargs)
            self._plain, Accelerator.backward = plain, backward

        def on_pre_optimizer_step(self, args, state, control, optimizer=None, **_):
            try:
                self.scaling.before_step(optimizer, int(state.epoch or 0) + 1)
            except BaseException:
                self._end()
                raise

        def on_train_end(self, args, state, control, **_):
            self._end("finished")

        def _end(self, status="interrupted"):
            if self._plain is not None:
                Accelerator.backward, self._plain = self._plain, None
            self.scaling.end(status)

        # --- Of checkpoints ---

        def state(self):
            return {"args": {}, "attributes": {"scaling_state": self.scaling.state()}}

        @property
        def scaling_state(self):
            return self.scaling.state()

        @scaling_state.setter
        def scaling_state(self, state):
            self.scaling.load(state)
    return AdaLossCallback()
