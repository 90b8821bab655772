// ResNets for ImageNet's 224x224 images, part of the zoo.
#pragma once
#include <vector>

#include "config/config.h"

namespace ada::graph {

// As torchvision builds them (a bottleneck's stride is its 3x3 convolution's), with its names for
// what has parameters, in its order: weights travel both ways. The stem (7x7 and a pooling, each of
// stride 2) leaves a quarter of height and width: made for large images. On CIFAR's 32x32 the last
// stage sees single pixels; the zoo's resnet20 to resnet110 are made for those.
std::vector<config::LayerConfig> ResNet18(const config::ModelConfig& model);
std::vector<config::LayerConfig> ResNet34(const config::ModelConfig& model);
std::vector<config::LayerConfig> ResNet50(const config::ModelConfig& model);

}  // namespace ada::graph
