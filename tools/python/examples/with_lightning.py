"""Adaptive loss scaling in Lightning, by a callback. usage: with_lightning.py [FOLDER]"""
import sys

import lightning
import torch
from plain_loop import images
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from ada_train.torch.callbacks import lightning_callback


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2),
                                 nn.ReLU(), nn.Flatten(), nn.Linear(400, 64), nn.ReLU(),
                                 nn.Linear(64, 10))

    def training_step(self, batch, _):
        x, y = batch
        return functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def main():
    lightning.seed_everything(0)
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    scaling = lightning_callback({"init_scale": 2.0 ** -6}, folder=folder, every=10)
    trainer = lightning.Trainer(max_epochs=3, accelerator="cpu", precision="bf16-mixed",
                                gradient_clip_val=1.0, callbacks=[scaling], logger=False,
                                enable_checkpointing=False, enable_progress_bar=False)
    model = Classifier()
    x, y = images(1024, 1)
    trainer.fit(model, DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True))
    x, y = images(512, 2)
    with torch.no_grad():
        print(f"accuracy {(model.net(x).argmax(1) == y).float().mean().item():.1%}")


if __name__ == "__main__":
    main()
