// What stands behind the handles of the C interface.
#pragma once
#include <memory>
#include <string>

#include "c_api/ada_scaling.h"
#include "scaling/policies/policies.h"

struct ada_policy {
  ada::scaling::Settings settings;  // filled in
  std::string section;              // the same as YAML
  std::unique_ptr<ada::scaling::Policy> policy;
};

struct ada_layer {
  ada::scaling::LayerScaler scaler;
  std::string name;
};
