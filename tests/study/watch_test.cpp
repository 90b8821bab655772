// `watch` without a terminal: the sparkline, the picture at all sizes, files that grow, are torn or
// cut, and what of them is shown.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "error.h"
#include "io/file.h"
#include "io/file_lock.h"
#include "study/run_files.h"
#include "study/text_table.h"
#include "study/watch/watch_view.h"
#include "study/written_run.h"

namespace ada::study {
namespace {

using testing::TempFolder;
using testing::WrittenRun;

// `layers` layers, of which layer i (from 1) has lost i / 10 percent.
WatchState Network(int layers) {
  WatchState state;
  state.name = "r";
  state.folder = "runs/r";
  state.Add(telemetry::StepRow{.step = 200,
                               .epoch = 2,
                               .loss = 1.25,
                               .accuracy = 0.5,
                               .lr = 0.1,
                               .scale = 1024,
                               .skipped = true});
  for (int i = 1; i <= layers; ++i) {
    TensorRow row;
    row.step = 200;
    row.layer = "layer" + std::to_string(i);
    row.tensor = "dx";
    row.scale = 1024;
    row.underflow_pct_nonzero = i / 10.0;
    state.Add(row);
  }
  return state;
}

// Rows of Network have a share and no counts.
const std::string kLost = "no value was lost of dx, 1 of 200 steps";

TEST_SUITE("cpu") {
  TEST_CASE("sparklines") {
    const std::deque<double> pct = {0, 1e-9, 0.01, 0.02, 0.5, 3, 5, 30, 31, 100, NAN};
    CHECK(Sparkline(pct, 20, false) == "_..:-=+*## ");
    CHECK(Sparkline(pct, 4, false) == "*## ");
    CHECK(Sparkline(pct, 0, false).empty());
    CHECK(Sparkline({}, 5, false).empty());
    CHECK(Sparkline({0, 50}, 5, true) == "▁█");
  }

  TEST_CASE("operands in blocks: a column of marks, the worst operand, the widest scales") {
    WatchState state = Network(2);
    const auto add = [&](const char* layer, const char* tensor, double sqnr, double low) {
      BlockRow row;
      row.step = 200, row.layer = layer, row.tensor = tensor;
      row.sqnr_db = sqnr, row.scale_log2_min = low, row.scale_log2_max = 2;
      state.Add(row);
    };
    add("layer1", "forward.x", 35, -3);
    add("layer1", "dw.dy", 4, 1);
    add("layer2", "dx.w", INFINITY, -20);
    const std::vector<std::string> lines = DrawWatch(state, {.width = 80});
    CHECK(std::vector<std::string>(lines.begin() + 2, lines.end()) ==
          std::vector<std::string>{
              "operands: layer1.dw.dy 4.0 dB is the worst; widest scales: layer2.dx.w, log2",
              "  -20..2",
              "layer       scale  underf.%  limit      SQNR    last logged steps, to step 200",
              "layer1       1024     0.100  -          .    #  :",
              "layer2       1024     0.200  -             _    -",
              "underflow % of dx, up to _ 0  . 0.01  : 0.1  - 1  = 3  + 10  * 30  # 100  ! inf",
              "SQNR dB (y: x w, dx: dy w, dw: x dy) _ 40 . 30 : 25 - 20 = 15 + 10 * 4.8 # less",
              kLost});
    // A later step has its own worst.
    BlockRow later;
    later.step = 300, later.layer = "layer2", later.tensor = "forward.w", later.sqnr_db = 12;
    state.Add(later);
    CHECK(DrawWatch(state, {.width = 80})[2].starts_with("operands: layer2.forward.w 12.0 dB"));
  }

  TEST_CASE("the picture") {
    WatchState state = Network(2);
    state.epochs = 4;
    ScaleRow scale;
    scale.step = 200;
    scale.layer = "layer2";
    scale.limit = "cap";
    state.Add(scale);
    scale.limit = "branch";  // a row of its own, not the layer's decision
    state.Add(scale);
    state.Add(telemetry::EvaluationRow{
        .step = 100, .epoch = 1, .split = "test", .images = 10, .loss = 2, .top1 = 0.25});
    state.Add(telemetry::EventRow{150, 2, "skip", "fc", "dx", "inf", "not finite"});
    CHECK(DrawWatch(state, {.width = 80}) ==
          std::vector<std::string>{
              "r  running  runs/r",
              "step 200  epoch 2/4  loss 1.25  acc 50.0 %  lr 0.1  S 1024  skipped 1",
              "test: loss 2  top-1 25.00 % (step 100)", "last event: step 150, skip: not finite",
              "layer       scale  underf.%  limit      last logged steps, to step 200",
              "layer1       1024     0.100  -          :",
              "layer2       1024     0.200  cap        -",
              "underflow % of dx, up to _ 0  . 0.01  : 0.1  - 1  = 3  + 10  * 30  # 100  ! inf",
              kLost});
    state.status = "died";
    CHECK(DrawWatch(state, {.width = 100}).front() ==
          "r  ended without a summary (killed?)  runs/r");
  }

  TEST_CASE("a run that is not finite: the point is whole in 80 columns") {
    const auto line = [](const telemetry::EventRow& event) {
      WatchState state = Network(1);
      state.Add(telemetry::StepRow{.step = 1872, .loss = NAN, .scale = 8, .overflow = true});
      state.Add(event);
      return DrawWatch(state, {.width = 80})[2];
    };
    CHECK(line({1872, 2, "skip", "conv2", "y", "202571.938", "not finite"}) ==
          "not finite from step 1872 on: a loss scale does not help; first conv2.y");
    CHECK(line({1872, 2, "skip", "conv2", "dx", "inf", "not finite"}) ==
          "not finite from step 1872 on: a smaller loss scale helps; first conv2.dx");
    CHECK(line({1872, 2, "skip", "fc", "w", "nan", "not finite"}) ==
          "not finite from step 1872 on: the optimizer's update did it; first fc.w");
  }

  TEST_CASE("a language model: tokens a second, nats, perplexity, bits a byte") {
    WatchState state = Network(1);
    state.language = true;
    state.Add(telemetry::TimingRow{.step = 200, .images_per_second = 96, .tokens = 12288});
    state.Add(telemetry::EvaluationRow{
        .step = 100, .epoch = 1, .split = "validation", .images = 10, .loss = 2, .top1 = 0.25});
    auto lines = DrawWatch(state, {.width = 80});
    CHECK(lines[0] == "r  running  12.3k tokens/s  runs/r");
    CHECK(lines[1] ==
          "step 200  epoch 2  loss 1.25 nats  perplexity 3.49  lr 0.1  S 1024  skipped 1");
    CHECK(lines[2] == "validation: loss 2 nats  perplexity 7.389  accuracy 25.00 % (step 100)");
    state.bytes = true;
    lines = DrawWatch(state, {.width = 100});
    CHECK(lines[2] ==
          "validation: loss 2 nats  2.885 bits per byte  perplexity 7.389  accuracy "
          "25.00 % (step 100)");
    const WrittenRun run("task: language\ndata: {dataset: text, path: nowhere, context: 16}\n",
                         true, "gpt2");
    run.Step(1, "2");
    WatchState seen;
    WatchFeed(run.path()).Poll(seen);
    CHECK(seen.language);
    CHECK(seen.bytes);
  }

  TEST_CASE("how long the run will be, as its progress line says") {
    struct Case {
      std::int64_t epochs, max_steps;
      const char *at_first, *at_last;
    };
    for (const Case& c : {Case{4, 0, "step 6  epoch 1/4  ", "step 7/24  epoch 2/4  "},
                          {4, 20, "step 6/20  epoch 1  ", "step 7/20  epoch 2  "},
                          {4, 18, "step 6/18  epoch 1  ", "step 7/18  epoch 2/3  "},
                          {4, 99, "step 6/99  epoch 1  ", "step 7/24  epoch 2/4  "},
                          {0, 0, "step 6  epoch 1  ", "step 7  epoch 2  "}}) {
      WatchState state;
      state.epochs = c.epochs;
      state.max_steps = c.max_steps;
      for (int step = 1; step <= 7; ++step) {
        state.Add(telemetry::StepRow{.step = step, .epoch = (step - 1) / 6 + 1});
        if (step == 6) CHECK(DrawWatch(state, {})[1].starts_with(c.at_first));
      }
      CHECK(DrawWatch(state, {})[1].starts_with(c.at_last));
    }
  }

  TEST_CASE("images per second, the time left, and the last event whole") {
    WatchState state;
    state.name = "r";
    state.max_steps = 100;
    state.Add(telemetry::StepRow{.step = 40, .epoch = 1});
    state.Add(telemetry::TimingRow{.step = 20, .seconds = 90, .images_per_second = 50});
    state.Add(telemetry::TimingRow{.step = 40, .seconds = 10, .images_per_second = 541});
    CHECK(state.seconds_left() == 30);
    std::string message = "gradients are not finite";
    for (int i = 0; i < 12; ++i) message += ", layer" + std::to_string(i) + ".dx";
    state.Add(telemetry::EventRow{39, 1, "skip", "fc", "dx", "inf", message});
    const std::vector<std::string> lines = DrawWatch(state, {.width = 60});
    CHECK(lines.front().starts_with("r  running  541 img/s  left 0:30"));
    const auto first = std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
      return line.starts_with("last event");
    });
    REQUIRE(lines.end() - first > 2);
    std::string event = *first;
    for (auto line = first + 1; line != lines.end(); ++line) event += line->substr(1);
    CHECK(event == "last event: step 39, skip: " + message);
    state.status = "finished";
    CHECK(DrawWatch(state, {}).front().starts_with("r  finished"));
  }

  TEST_CASE("colours: yellow from a tenth lost on, red from half of it") {
    const std::vector<std::string> plain = DrawWatch(Network(600), {.width = 80});
    const std::vector<std::string> drawn = DrawWatch(Network(600), {.width = 80, .color = true});
    REQUIRE(drawn.size() == plain.size());
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      const int layer = static_cast<int>(i) - 2;  // the first is line 3
      const bool table = layer >= 1 && layer <= 600;
      const std::string code = !table || layer < 100 ? "" : layer < 500 ? "\033[33m" : "\033[31m";
      CHECK(drawn[i] == code + plain[i] + (code.empty() ? "" : "\033[0m"));
    }
  }

  TEST_CASE("a run that has written nothing yet") {
    WatchState state;
    state.name = "r";
    CHECK(DrawWatch(state, {}) ==
          std::vector<std::string>{"r  running", "no step has been written yet"});
  }

  TEST_CASE("more layers than lines: those that underflow most, in their order") {
    WatchState state = Network(40);
    for (WatchedLayer& layer : state.layers) {
      if (layer.name == "layer3") layer.history = {90};
    }
    const auto lines = DrawWatch(state, {.width = 100, .height = 9});
    REQUIRE(lines.size() == 9);
    CHECK(lines[3].starts_with("layer3 "));
    CHECK(lines[4].starts_with("layer39 "));
    CHECK(lines[5].starts_with("layer40 "));
    CHECK(lines[6] == "and 37 more layers, mean underflow at most 3.800 %");
    CHECK(lines[8] == kLost);
    CHECK(DrawWatch(state, {.width = 100, .height = 45}).size() == 45);
    CHECK(DrawWatch(state, {.width = 100, .height = 45})[3].starts_with("layer1 "));
    CHECK(DrawWatch(state, {.width = 100}).size() == 45);
  }

  TEST_CASE("no size breaks a line") {
    WatchState state = Network(60);
    state.name = "\xC3\xA4\xC3\xA4\xC3\xA4 \033[2J";
    for (WatchedLayer& layer : state.layers) layer.history.assign(300, 0.5);
    for (std::size_t width = 1; width < 200; width += 3) {
      for (std::size_t height = 1; height < 70; height += 4) {
        const auto lines = DrawWatch(state, {.width = width, .height = height, .utf8 = true});
        CHECK(lines.size() <= height);
        for (const std::string& line : lines) {
          CHECK(TextWidth(line) <= width);
          CHECK(line.find('\033') == std::string::npos);
        }
      }
    }
  }

  TEST_CASE("steps become visible when they are whole") {
    const WrittenRun run("train: {epochs: 3, max_steps: 50}\n");
    WatchFeed feed(run.path());
    WatchState state;
    CHECK_FALSE(feed.Poll(state));
    CHECK(state.name == "r");
    CHECK(state.epochs == 3);
    CHECK(state.max_steps == 50);
    run.Tensor(1, "fc", "dx", "8", "0.5");
    run.Tensor(1, "fc", "dw", "1", "9");
    run.Scale(1, "fc", "8", "cap");
    CHECK_FALSE(feed.Poll(state));  // steps.csv has no row of step 1 yet
    CHECK(state.layers.empty());
    run.Step(1, "2.5", "4");
    CHECK(feed.Poll(state));
    CHECK(state.step.loss == 2.5);
    CHECK(state.step.scale == 4);
    CHECK(state.logged_step == 1);
    REQUIRE(state.layers.size() == 1);
    CHECK(state.layers[0].name == "fc");
    CHECK(state.layers[0].scale == 8);
    CHECK(state.layers[0].limit == "cap");
    CHECK(state.layers[0].underflow_pct == 0.5);
    CHECK_FALSE(feed.Poll(state));
  }

  TEST_CASE("of a long file the first step that is read is whole: layers stay in their order") {
    const WrittenRun run;
    constexpr int kLayers = 97;
    std::string rows, names;
    for (int step = 1; rows.size() < (25u << 20); ++step) {
      run.Append("steps.csv", std::to_string(step) + ",1,2,0.5,0.1,4,0,0,2\n");
      for (int i = 1; i <= kLayers; ++i)
        rows += std::to_string(step) + ",1,layer" + std::to_string(i) +
                ",dx,fp16,8,100,0,0,0,0.5,0,0,0,0,0,0,0.5,2,0,1,80,10,2,,,\n";
    }
    run.Append("underflow.csv", rows);
    WatchFeed feed(run.path());
    WatchState state;
    CHECK(feed.Poll(state));
    REQUIRE(state.layers.size() == kLayers);
    for (int i = 1; i <= kLayers; ++i)
      CHECK(state.layers[static_cast<std::size_t>(i) - 1].name == "layer" + std::to_string(i));
  }

  TEST_CASE("each logged step is told, with its own state") {
    const WrittenRun run;
    for (int step = 1; step <= 5; ++step) run.Step(step, std::to_string(step), "1", step == 2);
    for (const int step : {1, 3, 5}) run.Tensor(step, "fc", "dx", "8", std::to_string(step));
    run.Append("events.csv", "2,1,skip,fc,dx,inf,\"one, two\"\n");
    run.Append("evaluation.csv", "5,1,test,500,0.75,0.5,0.875\n");
    WatchFeed feed(run.path());
    WatchState state;
    std::vector<std::int64_t> steps, skipped, events;
    std::vector<double> pct;
    feed.Poll(state, [&] {
      steps.push_back(state.step.step);
      skipped.push_back(state.skipped);
      events.push_back(state.event.step);
      pct.push_back(state.layers.at(0).underflow_pct);
    });
    CHECK(steps == std::vector<std::int64_t>{1, 3, 5});
    CHECK(skipped == std::vector<std::int64_t>{0, 1, 1});
    CHECK(events == std::vector<std::int64_t>{0, 2, 2});
    CHECK(pct == std::vector<double>{1, 3, 5});
    CHECK(state.layers[0].history == std::deque<double>{1, 3, 5});
    CHECK(state.event.message == "one, two");
    CHECK(state.evaluation.top1 == 0.5);
  }

  TEST_CASE("steps that no run reaches, or that go back, keep nobody waiting") {
    const WrittenRun run;
    run.Tensor(2'000'000'000, "fc", "dx", "8", "0.5");
    run.Append("scales.csv", "9223372036854775807,1,fc,adaptive,1,,,1,8,8,cap\n");
    run.Append("steps.csv", "9223372036854775807,1,1,0.5,0.1,1,0,0,2\n");
    run.Step(1'000'000'000, "1"), run.Step(7, "1"), run.Step(3'000'000'000, "1");
    WatchFeed feed(run.path());
    WatchState state;
    CHECK(feed.Poll(state));
    CHECK(state.step.step == 3'000'000'000);
    CHECK(state.logged_step == 2'000'000'000);
  }

  TEST_CASE("a resume from an earlier step begins the state anew") {
    const WrittenRun run;
    run.Step(1, "3");
    const std::string one = run.files().Read("steps.csv");
    run.Step(2, "2", "1", true);
    run.Tensor(2, "fc", "dx", "8", "1");
    WatchFeed feed(run.path());
    WatchState state;
    state.folder = run.path();
    CHECK(feed.Poll(state));
    CHECK(state.skipped == 1);
    run.files().Write("steps.csv", one);
    run.files().Write("underflow.csv", telemetry::Header<telemetry::TensorRow>() + "\n");
    CHECK(feed.Poll(state));
    CHECK(state.step.step == 1);
    CHECK(state.skipped == 0);
    CHECK(state.layers.empty());
    CHECK(state.folder == run.path());
    CHECK(state.name == "r");
  }

  TEST_CASE("whether a run goes on, and how it ended") {
    const WrittenRun run;
    CHECK(RunState(run.path()) == "finished");
    run.Finish("interrupted");
    CHECK(RunState(run.path()) == "interrupted");
    std::filesystem::remove(run.files() / "summary.json");
    CHECK(RunState(run.path()) == "died");
    {
      const auto lock = FileLock::TryLock(run.path());
      REQUIRE(lock.has_value());
      CHECK(IsRunning(run.path()));
      CHECK(RunState(run.path()) == "running");
    }
    CHECK_FALSE(IsRunning(run.path()));
    const auto lock = FileLock::TryLock(run.path());  // asking kept nobody out
    CHECK(lock.has_value());
    run.files().Write("summary.json", "{");
    CHECK_THROWS_AS(RunState(run.path()), DataError);
  }

  TEST_CASE("the character set of the environment's locale") {
    struct Saved {
      explicit Saved(const char* variable) : name(variable) {
        if (const char* old = std::getenv(variable)) value = old, set = true;
        unsetenv(variable);
      }
      ~Saved() { set ? setenv(name, value.c_str(), 1) : unsetenv(name); }
      const char* name;
      std::string value;
      bool set = false;
    };
    const Saved all("LC_ALL"), type("LC_CTYPE"), lang("LANG");
    CHECK_FALSE(LocaleIsUtf8());
    setenv("LANG", "de_DE.UTF-8", 1);
    CHECK(LocaleIsUtf8());
    setenv("LC_CTYPE", "C.utf8", 1);
    CHECK(LocaleIsUtf8());
    setenv("LC_ALL", "POSIX", 1);
    CHECK_FALSE(LocaleIsUtf8());
    setenv("LC_ALL", "", 1);
    CHECK(LocaleIsUtf8());
  }
}

}  // namespace
}  // namespace ada::study
