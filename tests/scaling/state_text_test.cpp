// States as text that reads back to the same bits, and the refusal of damaged ones.
#include "scaling/rules/state_text.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "error.h"

namespace ada::scaling {
namespace {

LayerState WithTail() {
  LayerState state;
  state.unbound = 32;
  state.unbound_limit = Limit::kTarget;
  state.calls = 17;
  state.tail.scale_in = 0.1f;
  state.tail.nonzero = 5000000004;
  state.tail.largest = 0.123;
  state.tail.bins[0] = 3;
  state.tail.bins[97] = 5000000000;
  state.tail.bins[107] = 1;
  state.tail_is_new = true;
  return state;
}

TEST_SUITE("cpu") {
  TEST_CASE("numbers") {
    for (const double value :
         {1.0, 65536.0, 0.1, 0x1p-149, 0x1.fffffffffffffp+1023, 5e-324, 0.0, -3.7}) {
      const StateMap state{{"x", ToHex(value)}};
      CAPTURE(state.at("x"));
      CHECK(ReadHex(state, "x") == value);
      CHECK(std::strtod(state.at("x").c_str(), nullptr) == value);
    }
    CHECK(ToHex(24) == "0x1.8p+4");
    CHECK(std::isnan(ReadHex({{"x", ToHex(NAN)}}, "x")));
    CHECK(ReadHex({{"x", ToHex(-INFINITY)}}, "x") == -INFINITY);
  }

  TEST_CASE("keys") {
    const std::vector<std::string_view> keys = {"a", "b"};
    ExpectKeys({{"a", ""}, {"b", ""}}, "some", keys);
    CHECK_THROWS_WITH_AS(ExpectKeys({{"a", ""}}, "some", keys),
                         "scaling state of 'some': key 'b' is missing; was the run started with "
                         "another policy?",
                         DataError);
    CHECK_THROWS_AS(ExpectKeys({{"a", ""}, {"b", ""}, {"c", ""}}, "some", keys), DataError);
  }

  TEST_CASE("a layer's state") {
    for (const double unbound : {123.456789, 1.0, 0.0, static_cast<double>(INFINITY)}) {
      LayerState state;
      state.unbound = unbound;
      state.unbound_limit = Limit::kCap;
      state.calls = 1234567890123;
      const StateMap saved = SaveLayerState(state);
      CHECK(saved.size() == 3);
      const LayerState loaded = LoadLayerState(saved, "fc");
      CHECK(loaded.unbound == state.unbound);
      CHECK(loaded.unbound_limit == state.unbound_limit);
      CHECK(loaded.calls == state.calls);
      CHECK(loaded.tail.scale_in == 0);
    }
    LayerState after_nan;  // what `reference` caches
    after_nan.unbound = NAN;
    CHECK(std::isnan(LoadLayerState(SaveLayerState(after_nan), "fc").unbound));
  }

  TEST_CASE("a layer's tail: sparse and exact") {
    const LayerState state = WithTail();
    const StateMap saved = SaveLayerState(state);
    CHECK(saved.at("tail") ==
          ToHex(0.1f) + " 5000000004 " + ToHex(0.123) + " 1 0:3 97:5000000000 107:1");
    const LayerState loaded = LoadLayerState(saved, "fc");
    CHECK(loaded.tail.scale_in == state.tail.scale_in);
    CHECK(loaded.tail.nonzero == state.tail.nonzero);
    CHECK(loaded.tail.largest == state.tail.largest);
    CHECK(loaded.tail_is_new);
    for (int bin = 0; bin < ExponentTail::kBins; ++bin) {
      CHECK(loaded.tail.bins[bin] == state.tail.bins[bin]);
    }
  }

  TEST_CASE("damaged layer states are refused") {
    const std::vector<std::pair<std::string, std::string>> rows = {
        {"unbound", "-0x1p+0"},
        {"unbound", "12 apples"},
        {"limit", "11"},
        {"limit", "-1"},
        {"calls", "-1"},
        {"calls", ""},
        {"other", "1"},
        {"tail", ""},
        {"tail", "0x1p+0 108 12 0x1p+0"},
        {"tail", "0x1p+0 108 12 0x1p+0 1 5"},
        {"tail", "0x1p+0 108 12 0x1p+0 1 256:1"},
        {"tail", "0x1p+0 108 12 0x1p+0 1 -1:1"},
        {"tail", "0x1p+0 108 12 0x1p+0 1 5:-1"},
        {"tail", "0x1p+0 108 12 0x1p+0 1 5:7 6:6"},
        {"tail", "0x1p+0 108 12 0x1p+0 1 5:9223372036854775807 6:9223372036854775807"},
        {"tail", "0x1p+0 256 12 0x1p+0 1 5:1"},
        {"tail", "0x0p+0 108 12 0x1p+0 1 5:1"},
        {"tail", "inf 108 12 0x1p+0 1 5:1"},
        {"tail", "0x1p+0 108 12 nan 1 5:1"},
        {"tail", "0x1p+0 108 12 -0x1p+0 1 5:1"},
        {"tail", "0x1p+0 108 x 0x1p+0 1 5:1"}};
    for (const auto& [key, text] : rows) {
      CAPTURE(key);
      CAPTURE(text);
      StateMap bad = SaveLayerState(WithTail());
      bad[key] = text;
      CHECK_THROWS_AS(LoadLayerState(bad, "fc"), DataError);
    }
    for (const std::string key : {"unbound", "limit", "calls"}) {
      StateMap bad = SaveLayerState(WithTail());
      bad.erase(key);
      CHECK_THROWS_AS(LoadLayerState(bad, "fc"), DataError);
    }
  }
}

}  // namespace
}  // namespace ada::scaling
