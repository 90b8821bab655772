// What the network's input is and what the classes are called: all that the prediction for a photo
// needs of a data set, so that a checkpoint carries it and the files need not be there.
#pragma once
#include <string>
#include <vector>

#include "core/json_file.h"
#include "core/tensor.h"

namespace ada::train {

struct InputFacts {
  Shape image;                           // that the network takes; n is 1
  std::vector<double> mean, std;         // of the normalization, by channel; empty: none
  std::vector<std::string> class_names;  // empty: nobody says them
};

// As a member of a checkpoint's JSON: {"height", "width", "channels", "mean", "std",
// "class_names"}; what of a name is no UTF-8 stands there as \x1b.
nlohmann::ordered_json JsonOf(const InputFacts& facts);
// DataError naming the field that is not what it must be.
InputFacts InputFactsFrom(const JsonFields& fields);

}  // namespace ada::train
