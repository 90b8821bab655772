"""Averages that checkpoints have beside the weights: batch norms' running statistics, and train.ema."""

import numpy as np

import norms
from exact import single


class Averages:
    """The part of Beside that knows these."""

    def running_statistics(self, after):
        """Batch norms' running averages, after each part of the batch: average = (1 - momentum) average + momentum
        batch's."""
        for node in self.network.nodes:
            if not isinstance(node.layer, norms.BatchNorm):
                continue
            m = node.layer.key("momentum", 0.1)
            for name, (values, off) in node.layer.batches.items():
                key = f"{node.name}.{name}"
                average, error = self.running.get(key, self.weights[key]), 0.0
                for value, one in zip(values, off):
                    average, error = (1 - m) * average + m * value, (1 - m) * error + m * one + 1e-6 * np.abs(average)
                got = after[key]
                if np.isfinite(average).all() and not (np.abs(got - average) <= error + 1e-6 * np.abs(average)).all():
                    self.differ(f"checkpoint {key}", got.tolist(), f"expected {average.tolist()}")
                self.running[key] = got
            node.layer.batches = {}

    def average(self, after, skipped):
        """train.ema: average = decay average + (1 - decay) weights, after every `every`-th update."""
        keys = self.config["train"].get("ema")
        if keys is None:
            return
        names = [n for n in after if not n.startswith(("optimizer.", "ema."))]
        if not self.averages:
            self.averages = {n: single(w) for n, w in self.weights.items()} | self.masters
        self.updated += not skipped
        moves = not skipped and self.updated % keys.get("every", 1) == 0
        decay = keys["decay"]
        if keys.get("warmup", False):
            decay = min(decay, (2 + self.averaged) / (11 + self.averaged))
        self.averaged += moves
        for name in names:
            expected = decay * self.averages[name] + (1 - decay) * after[name] if moves else self.averages[name]
            got = after[f"ema.{name}"]
            near = 3e-7 * (np.abs(self.averages[name]) + np.abs(after[name])) + 1e-44
            if np.isfinite(expected).all() and not (np.abs(got - expected) <= near).all():
                self.differ(f"checkpoint ema.{name}", got.ravel()[:4].tolist(), f"expected {expected.ravel()[:4]}")
            self.averages[name] = got
