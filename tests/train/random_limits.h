// What random configurations leave out, and what they never leave out.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ada::testing {

// Keys for which not all values are tried: the others would need too much time, memory, a GPU, or
// files.
inline const std::map<std::string, std::pair<int, int>> kSmallNumbers = {
    {"device.threads", {1, 3}},
    {"data.synthetic.height", {1, 12}},
    {"data.synthetic.width", {1, 12}},
    {"data.synthetic.channels", {1, 4}},
    {"data.synthetic.classes", {2, 6}},
    {"data.synthetic.train", {1, 24}},
    {"data.synthetic.test", {1, 12}},
    {"data.batch_size", {1, 12}},
    {"data.evaluate_batch_size", {1, 12}},
    {"data.validation", {0, 12}},
    {"data.resize", {1, 14}},
    {"data.center_crop", {1, 14}},
    {"data.augment.random_resized_crop.size", {1, 14}},
    {"data.workers", {0, 3}},
    {"model.classes", {2, 8}},
    {"model.hidden", {1, 12}},
    {"model.layers[].channels", {1, 9}},
    {"model.layers[].features", {1, 12}},
    {"model.layers[].kernel", {1, 4}},
    {"model.layers[].stride", {1, 3}},
    {"model.layers[].padding", {0, 3}},
    {"model.layers[].dilation", {1, 3}},
    {"model.layers[].groups", {1, 4}},
    {"model.layers[].scale", {1, 3}},
    {"model.layers[].size", {1, 6}},
    {"model.layers[].values", {1, 4}},
    {"model.layers[].vocabulary", {1, 12}},
    {"model.layers[].context", {1, 200}},
    {"model.layers[].heads", {1, 3}},
    {"model.layers[].kv_heads", {1, 3}},
    {"model.layers[].rotary", {2, 6}},
    {"model.layers[].position", {0, 3}},
    {"model.layers[].repeat.repeat", {1, 3}},
    {"train.epochs", {1, 3}},
    {"train.max_steps", {1, 6}},
    {"train.accumulate", {1, 4}},
};
inline const std::map<std::string, std::vector<std::string>> kFewWords = {
    {"device.kind", {"auto", "cpu"}},
    {"device.fp8", {"emulated"}},
    {"data.dataset", {"synthetic"}},
    {"model.zoo", {"mlp", "lenet"}},
};
inline const std::vector<std::string> kNotTried = {"name",          "output",
                                                   "data.path",     "data.augment.ssd",
                                                   "model.file",    "model.init.weights",
                                                   "model.outputs", "task",
                                                   "detection",     "train.class_weights",
                                                   "parallel.ranks"};
// Without these a run would be long, or not small.
inline const std::vector<std::string> kAlways = {"train.max_steps",         "data.synthetic",
                                                 "data.synthetic.height",   "data.synthetic.width",
                                                 "data.synthetic.train",    "data.synthetic.test",
                                                 "data.batch_size",         "device",
                                                 "device.threads",          "train",
                                                 "data.evaluate_batch_size"};

}  // namespace ada::testing
