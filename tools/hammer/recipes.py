"""The runs that are hammered: fractions of a second each, on made-up images and on small data sets
of pictures in every layout that ada-train reads."""
import dataclasses
from typing import Callable

import data_sets

# It writes every kind of file and carries every kind of state.
SYNTHETIC = """
data:
  dataset: synthetic
  synthetic: {height: 8, width: 8, channels: 3, classes: 5, train: 70, test: 20}
  batch_size: 10
  augment: {pad: 1, random_crop: true}
  validation: 10
model:
  layers:
    - {name: conv1, kind: conv2d, channels: 4, kernel: 3, padding: 1, bias: false}
    - {name: bn1, kind: batch_norm}
    - {name: relu1, kind: relu}
    - {name: drop, kind: dropout, rate: 0.2}
    - {name: fc, kind: linear, features: 5}
precision: {format: fp16}
optimizer: {kind: sgd, lr: 0.02, momentum: 0.9}
scaling: {policy: adaptive, update_interval: 3}
train: {epochs: 5}
log: {every: 3, histogram_every: 6, probe_every: 9, dump_every: 10, tensorboard: true,
      statistics: [y, w, dx, dw, dy], what_if: [{format: fp8_e5m2}]}
checkpoint: {every_steps: 4, keep: 2, best: true}
"""

FOLDER = """
data:
  dataset: folder
  path: data
  batch_size: 6
  resize: 18
  center_crop: 16
  augment: {random_resized_crop: {size: 16}, horizontal_flip: true}
  workers: 2
model:
  layers:
    - {name: conv1, kind: conv2d, channels: 4, kernel: 3, padding: 1}
    - {name: relu1, kind: relu}
    - {name: fc, kind: linear, features: classes}
precision: {format: bf16}
optimizer: {kind: sgd, lr: 0.02, momentum: 0.9}
train: {epochs: 5}
log: {every: 3, histogram_every: 6}
checkpoint: {every_steps: 4, keep: 2, best: true}
"""

CAMVID = """
task: segmentation
data:
  dataset: camvid
  path: data
  class_names: [first, second, ground]
  batch_size: 3
  evaluate_batch_size: 2
  augment: {horizontal_flip: true}
  workers: 1
model:
  layers:
    - {name: conv1, kind: conv2d, channels: 4, kernel: 3, padding: 1, bias: false}
    - {name: bn1, kind: batch_norm}
    - {name: relu1, kind: relu}
    - {name: pool1, kind: max_pool, kernel: 2}
    - {name: unpool1, kind: max_unpool, pool: pool1}
    - {name: classifier, kind: conv2d, channels: classes, kernel: 1}
precision: {format: fp16}
scaling: {policy: adaptive, update_interval: 3}
optimizer: {kind: sgd, lr: 0.1, momentum: 0.9}
train: {epochs: 5, class_weights: median_frequency}
evaluate: {every_epochs: 2, recompute_batch_norm: true}
log: {every: 3}
checkpoint: {every_steps: 4, keep: 2, best: true}
"""

VOC = """
task: detection
data:
  dataset: voc
  path: data
  batch_size: 4
  evaluate_batch_size: 3
  resize: [16, 16]
  augment: {ssd: true}
  workers: 1
detection:
  boxes: {grids: [4], steps: [4], sizes: [5, 9], aspect_ratios: [[2]]}
model:
  outputs: [locations, scores]
  layers:
    - {name: conv1, kind: conv2d, channels: 4, kernel: 3, stride: 2, padding: 1}
    - {name: relu1, kind: relu}
    - {name: conv2, kind: conv2d, channels: 8, kernel: 3, stride: 2, padding: 1}
    - {name: relu2, kind: relu}
    - {name: loc, kind: conv2d, channels: 16, kernel: 3, padding: 1, inputs: [relu2]}
    - {name: locations, kind: concat_boxes, values: 4, inputs: [loc]}
    - {name: conf, kind: conv2d, channels: 12, kernel: 3, padding: 1, inputs: [relu2]}
    - {name: scores, kind: concat_boxes, values: 3, inputs: [conf]}
precision: {format: fp16}
scaling: {policy: dynamic, init_scale: 64}
optimizer: {kind: sgd, lr: 0.01, momentum: 0.9}
train: {epochs: 5}
evaluate: {every_epochs: 2}
log: {every: 3}
checkpoint: {every_steps: 4, keep: 2, best: true}
"""

HEAD = "name: hammer\nseed: 3\ndevice: {kind: cpu, threads: 2}\n"


@dataclasses.dataclass
class Recipe:
    name: str
    config: str
    make_data: Callable = None  # into a folder `data` beside the configuration


RECIPES = [Recipe("synthetic", HEAD + SYNTHETIC),
           Recipe("folder", HEAD + FOLDER, data_sets.make_folder),
           Recipe("voc", HEAD + VOC, data_sets.make_voc),
           Recipe("camvid", HEAD + CAMVID, data_sets.make_camvid)]
