// The table of layer kinds agrees with itself and with the keys that the configuration reads.
#include <doctest/doctest.h>

#include <set>
#include <string>

#include "config/schema/schema.h"
#include "io/text.h"
#include "layers/layer_kind.h"

namespace ada::graph {
namespace {

const config::KeyInfo* FindKey(const std::vector<config::KeyInfo>& keys, const std::string& name) {
  for (const config::KeyInfo& key : keys) {
    if (key.path == "model.layers[]." + name) return &key;
  }
  return nullptr;
}

TEST_SUITE("cpu") {
  TEST_CASE("every row is complete") {
    std::set<std::string> names;
    for (const layers::LayerKind& kind : layers::LayerKinds()) {
      CAPTURE(kind.name);
      CHECK(names.insert(kind.name).second);
      CHECK(layers::FindLayerKind(kind.name) == &kind);
      CHECK((kind.infer != nullptr));
      CHECK((kind.spec != nullptr));
      for (const std::string& key : kind.required) CHECK(Contains(kind.keys, key));
      if (kind.has_weight) {  // dw is of x, dx of w
        CHECK(kind.is_trained());
        CHECK(kind.keeps_input);
        CHECK(kind.chooses_scale);
      }
      if (kind.chooses_scale_with_batch_norms) {
        CHECK(kind.is_trained());
        CHECK_FALSE(kind.chooses_scale);
      }
      CHECK(kind.Chooses(false) == kind.chooses_scale);
      CHECK(kind.Chooses(true) == (kind.chooses_scale || kind.chooses_scale_with_batch_norms));
      if (kind.hands_gradient_on) {
        CHECK_FALSE(kind.is_trained());
        CHECK_FALSE(kind.chooses_scale);
        CHECK_FALSE(kind.keeps_input);
        CHECK_FALSE(kind.keeps_output);
      }
    }
    CHECK(names.size() == layers::LayerKinds().size());
    CHECK(layers::FindLayerKind("conv3d") == nullptr);
  }

  TEST_CASE("the configuration knows each key of each kind, and no other") {
    const std::vector<config::KeyInfo> keys = config::AllKeys();
    std::set<std::string> known;
    for (const layers::LayerKind& kind : layers::LayerKinds()) {
      for (const std::string& name : kind.keys) {
        CAPTURE(kind.name);
        CAPTURE(name);
        known.insert(name);
        const config::KeyInfo* key = FindKey(keys, name);
        REQUIRE(key != nullptr);
        CHECK(Contains(key->only_for, kind.name));
      }
    }
    for (const config::KeyInfo& key : keys) {
      if (!key.path.starts_with("model.layers[].")) continue;
      CAPTURE(key.path);
      const std::string name = key.path.substr(std::string("model.layers[].").size());
      const bool of_all = Contains({"name", "kind", "inputs"}, name);
      CHECK(of_all == key.only_for.empty());
      CHECK(of_all != known.contains(name));
    }
  }
}

}  // namespace
}  // namespace ada::graph
