// Switches: what their variables may say; that each by itself leaves every byte of a run as it is;
// and what each changes of how the work is asked for.
#include "backend/cuda/switches.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "cuda/run_lab.h"
#include "error.h"

namespace ada::backend::test {
namespace {

using Pdl = CudaSwitches::Pdl;

// All that can be set otherwise, one by one, with the variables that do so.
struct Switched {
  std::string variable, value;
  CudaSwitches switches;
};
template <class Set>
Switched With(const std::string& variable, const std::string& value, Set&& set) {
  Switched made{variable, value, {}};
  set(made.switches);
  return made;
}
std::vector<Switched> AllSwitched() {
  return {With("ADA_CUDA_GRAPHS", "0", [](CudaSwitches& s) { s.graphs = false; }),
          With("ADA_CUDA_SIDE_STREAM", "0", [](CudaSwitches& s) { s.side_stream = false; }),
          With("ADA_CUDA_PDL", "off", [](CudaSwitches& s) { s.pdl = Pdl::kOff; }),
          With("ADA_CUDA_PDL", "early", [](CudaSwitches& s) { s.pdl = Pdl::kEarly; }),
          With("ADA_CUDA_PLAIN", "0", [](CudaSwitches& s) { s.plain = false; }),
          With("ADA_CUDA_LAST_BLOCK", "0", [](CudaSwitches& s) { s.last_block = false; }),
          With("ADA_CUDA_FUSED", "0", [](CudaSwitches& s) { s.fused = false; }),
          With("ADA_CUDA_ATTENTION", "0", [](CudaSwitches& s) { s.attention = false; }),
          With("ADA_CUDA_CUBLAS", "0", [](CudaSwitches& s) { s.cublas = false; }),
          With("ADA_CUDA_ROUND", "0", [](CudaSwitches& s) { s.round = false; }),
          With("ADA_CUDNN_SKIP", "3", [](CudaSwitches& s) { s.cudnn_skip = 3; }),
          With("ADA_CUDA_SCORES", "100", [](CudaSwitches& s) { s.scores = 100; }),
          With("ADA_CUDA_POISON", "1", [](CudaSwitches& s) { s.poison = true; })};
}
// Whether it makes a device's libraries choose other ways to a sum.
[[maybe_unused]] bool ChangesSums(const CudaSwitches& switches) {
  return !switches.cublas || !switches.round || switches.cudnn_skip > 0;
}

using Variables = std::map<std::string, std::string>;
CudaSwitches Read(const Variables& variables, const CudaSwitches& set = {}) {
  return cuda::SwitchesOf(set, [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}
std::string Refused(const std::string& name, const std::string& value) {
  try {
    Read({{name, value}});
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "not refused";
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("switches: each by itself leaves every byte of a run as it is") {
    const std::string adaptive = "scaling.policy=adaptive;scaling.method=exact_range";
    for (const std::string& changes :
         {std::string("scaling.policy=none;precision.format=bf16"), adaptive}) {
      const testing::TempFolder folder;
      const std::string path = folder.path();
      Train(Small(changes), path + "/made", 7, *MakeBackendUnderTest(CudaSwitches()));
      for (const Switched& switched : AllSwitched()) {
#ifdef ADA_CUDA_DEVICE
        if (ChangesSums(switched.switches)) continue;
#endif
        CAPTURE(switched.variable);
        CAPTURE(switched.value);
        const std::string other = path + "/" + switched.variable + switched.value;
        Train(Small(changes), other, 7, *MakeBackendUnderTest(switched.switches));
        CheckSameFiles(path + "/made", other);
      }
    }
  }

  TEST_CASE("switches: a backend's name has those that are set") {
    for (const Switched& switched : AllSwitched()) {
      const std::string words = MakeBackendUnderTest(switched.switches)->Describe();
      CHECK(words.ends_with(", " + switched.variable + "=" + switched.value));
    }
    CHECK(MakeBackendUnderTest(CudaSwitches())->Describe().find("ADA_") == std::string::npos);
  }
}

#ifndef ADA_CUDA_DEVICE
TEST_SUITE("cpu") {
  TEST_CASE("switches: what variables say, each by itself and all together") {
    CHECK(Read({}) == CudaSwitches());
    CHECK(cuda::SwitchesText({}) == "");
    Variables all;
    for (const Switched& switched : AllSwitched()) {
      CAPTURE(switched.variable);
      CHECK(Read({{switched.variable, switched.value}}) == switched.switches);
      CHECK(cuda::SwitchesText(switched.switches) ==
            ", " + switched.variable + "=" + switched.value);
      all[switched.variable] = switched.value;
    }
    const CudaSwitches changed = Read(all);
    CHECK(cuda::SwitchesText(changed) ==
          ", ADA_CUDA_GRAPHS=0, ADA_CUDA_SIDE_STREAM=0, ADA_CUDA_PLAIN=0, ADA_CUDA_LAST_BLOCK=0, "
          "ADA_CUDA_FUSED=0, ADA_CUDA_ATTENTION=0, ADA_CUDA_CUBLAS=0, ADA_CUDA_ROUND=0, "
          "ADA_CUDA_POISON=1, ADA_CUDA_PDL=early, ADA_CUDNN_SKIP=3, ADA_CUDA_SCORES=100");
    // What is set already stays, unless a variable says otherwise.
    CHECK(Read({}, changed) == changed);
    CHECK(Read({{"ADA_CUDA_PDL", "late"}}, changed).pdl == Pdl::kLate);
    CHECK(Read({{"ADA_CUDA_GRAPHS", "1"}}, changed).graphs);
  }

  TEST_CASE("switches: what is no value is refused, by name and with those that are") {
    for (const char* name : {"ADA_CUDA_GRAPHS", "ADA_CUDA_SIDE_STREAM", "ADA_CUDA_PLAIN",
                             "ADA_CUDA_LAST_BLOCK", "ADA_CUDA_FUSED", "ADA_CUDA_ATTENTION",
                             "ADA_CUDA_CUBLAS", "ADA_CUDA_ROUND", "ADA_CUDA_POISON"})
      for (const char* value : {"", "2", "off", "01", "0 "})
        CHECK(Refused(name, value) == std::string(name) + "=" + value + ": expected 0 or 1");
    for (const char* value : {"", "0", "on", "Late"})
      CHECK(Refused("ADA_CUDA_PDL", value) ==
            std::string("ADA_CUDA_PDL=") + value + ": expected off, late or early");
    for (const char* value : {"", "-1", "100", "1.5", "2x", "99999999999"})
      CHECK(Refused("ADA_CUDNN_SKIP", value) ==
            std::string("ADA_CUDNN_SKIP=") + value + ": expected a number of engines, 0 to 99");
    for (const char* value : {"", "0", "-1", "1e6", "1073741825"})
      CHECK(Refused("ADA_CUDA_SCORES", value) ==
            std::string("ADA_CUDA_SCORES=") + value +
                ": expected a number of scores, 1 to 1073741824");
  }

  TEST_CASE("switches: what the steps of a run ask for with each") {
    const auto asked = [](const CudaSwitches& switches, const std::string& policy = "none") {
      auto stream = std::make_unique<cuda::HostStream>(switches);
      cuda::HostStream& names = *stream;
      const auto backend = cuda::MakeBackendOn(std::move(stream), {"test", "none"}, {});
      names.KeepNames();
      const testing::TempFolder folder;
      Train(Small("log.every=0;scaling.policy=" + policy), folder.path(), 7, *backend);
      return names.TakeNames();
    };
    // How many of them have `part` in their name.
    const auto count = [](const std::vector<std::string>& names, const std::string& part) {
      return std::count_if(names.begin(), names.end(), [&](const std::string& name) {
        return name.find(part) != std::string::npos;
      });
    };
    const std::vector<std::string> made = asked({});
    for (const char* name : {"replay", "waits", "MaxPoolVec8", "Plain"})
      CHECK(count(made, name) > 0);
    for (const char* name : {"DecideUpdate", "LossSum", "ScaledSum"}) CHECK(count(made, name) == 0);
    CudaSwitches switches;
    switches.graphs = false;
    CHECK(count(asked(switches), "replay") == 0);
    switches = {}, switches.side_stream = false;
    CHECK(count(asked(switches), "waits") == 0);
    switches = {}, switches.plain = false;
    const std::vector<std::string> general = asked(switches);
    for (const char* name : {"MaxPoolVec8", "Plain"}) CHECK(count(general, name) == 0);
    switches = {}, switches.last_block = false;
    const std::vector<std::string> apart = asked(switches);
    for (const char* name : {"DecideUpdate", "LossSum"}) CHECK(count(apart, name) > 0);
    // From the second pass on layers' scales are decided by the launch that takes the moments of
    // dy.
    CHECK(count(asked(switches, "adaptive"), "DecideNext") > 0);
    CHECK(count(asked({}, "adaptive"), "DecideNext") == 0);
    switches = {}, switches.round = false;
    CHECK(count(asked(switches), "ScaledSum") > 0);
  }
}
#endif

}  // namespace ada::backend::test
