// evaluate's files and tables of single images and classes, and that they agree with what it says
// of the whole split.
#include "run/evaluate/predictions.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <sstream>

#include "train/small_run.h"

namespace ada::testing {
namespace {

using run::ImageResult;

// "split,image,..." rows as a table.
Table Predictions(const std::string& path) {
  CHECK(ReadBytes(path).starts_with(
      "split,image,label,prediction,probability,label_probability,loss,rank\n"));
  return ReadCsv(path);
}

Table CsvOf(const TempFolder& folder, const std::string& text) {
  folder.Write("table.csv", text);
  return ReadCsv(folder / "table.csv");
}

// A run of eight steps, and the arguments that evaluate its last checkpoint.
std::vector<std::string> SmallCheckpoint(const TempFolder& folder) {
  const Outcome run =
      Run(With(WriteConfig(folder, "run", SmallRun()), {"--set", "train.epochs=2"}), folder.path());
  ADA_REQUIRE_EXIT(run, 0);
  return {"evaluate", "--checkpoint", NewestCheckpoint(folder / "run")};
}

double Count(const Table& rows, const std::function<bool(const GoldenRow&)>& holds) {
  return static_cast<double>(std::count_if(rows.begin(), rows.end(), holds));
}

double Sum(const Table& rows, const std::string& column) {
  double sum = 0;
  for (const GoldenRow& row : rows) sum += Number(row, column);
  return sum;
}

TEST_SUITE("cpu") {
  TEST_CASE("a predictions file appears whole or not at all") {
    const TempFolder folder;
    const ImageResult hit = {2, 1, 1, 0.75, 0.75, 0.2876820724517809, 1, {}};
    const ImageResult lost = {3, 4, -1, NAN, NAN, NAN, 0, {}};
    {
      run::PredictionsFile file(folder / "a.csv");
      file.Add("test", "2", hit);
      CHECK(!folder.Has("a.csv"));
    }
    CHECK(!folder.Has("a.csv"));
    CHECK(std::filesystem::is_empty(folder.path()));
    run::PredictionsFile file(folder / "a.csv");
    file.Add("validation", "102", hit);
    file.Add("test", "3", lost);
    file.Commit();
    CHECK(ReadBytes(folder / "a.csv") ==
          "split,image,label,prediction,probability,label_probability,loss,rank\n"
          "validation,102,1,1,0.75,0.75,0.287682072,1\n"
          "test,3,4,,,nan,nan,\n");
    std::filesystem::create_directory(folder / "place");
    for (const std::string& path :
         {folder / "missing/a.csv", folder / "a.csv/b.csv", folder / "place"}) {
      CAPTURE(path);
      CHECK_THROWS_AS(run::PredictionsFile{path}, OutputError);
    }
    {
      run::PredictionsFile nowhere("/dev/null");
      nowhere.Add("test", "0", hit);
      nowhere.Commit();
    }
    CHECK(std::filesystem::is_character_file("/dev/null"));
  }

  TEST_CASE("hits of a class are of its images, precision is of what is predicted as it") {
    run::ClassTable table(4);
    const auto add = [&](int label, int prediction, std::int64_t rank) {
      table.Add({0, label, prediction, 0.5, 0.5, 0.7, rank, {}});
    };
    add(0, 0, 1), add(0, 0, 1), add(0, 1, 2), add(0, 1, 6);
    add(1, 1, 1), add(1, -1, 0);
    add(2, 1, 3);
    std::ostringstream out;
    table.Write("test", {"plane", "a \"big\" car, red"}, out);
    CHECK(out.str() ==
          "test,0,plane,4,0.5,0.75,1\n"
          "test,1,\"a \"\"big\"\" car, red\",2,0.5,0.5,0.25\n"
          "test,2,,1,0,1,\n"
          "test,3,,0,,,\n");
  }

  TEST_CASE("predictions add up to the split's loss and hits") {
    const TempFolder folder;
    const std::vector<std::string> evaluate = SmallCheckpoint(folder);
    const Outcome plain = Run(evaluate, folder.path());
    ADA_REQUIRE_EXIT(plain, 0);
    const Outcome o = Run(With(evaluate, {"--predictions", "p.csv"}), folder.path());
    ADA_REQUIRE_EXIT(o, 0);
    CHECK(o.out == plain.out);
    const Table predictions = Predictions(folder / "p.csv");
    const Table splits = CsvOf(folder, o.out);
    REQUIRE(splits.size() == 2);
    CHECK(predictions.size() == 40);
    for (const GoldenRow& split : splits) {
      CAPTURE(split.at("split"));
      const Table rows = RowsWhere(predictions, "split", split.at("split"));
      const double n = Number(split, "images");
      REQUIRE(static_cast<double>(rows.size()) == n);
      CHECK(Sum(rows, "loss") / n == doctest::Approx(Number(split, "loss")).epsilon(2e-8));
      const auto rank_up_to = [&](double k) {
        return Count(rows, [&](const GoldenRow& row) { return Number(row, "rank") <= k; }) / n;
      };
      CHECK(rank_up_to(1) == doctest::Approx(Number(split, "top1")).epsilon(1e-8));
      CHECK(rank_up_to(5) == doctest::Approx(Number(split, "top5")).epsilon(1e-8));
    }
  }

  TEST_CASE("a row's columns agree with each other and with the data set") {
    const TempFolder folder;
    ADA_REQUIRE_EXIT(Run(With(SmallCheckpoint(folder), {"--predictions", "p.csv"}), folder.path()),
                     0);
    // The last 10 of 130 training images are held back; image i of this data set is of class i
    // % 10.
    std::int64_t validation = 120, test = 0;
    for (const GoldenRow& row : Predictions(folder / "p.csv")) {
      std::int64_t& next = row.at("split") == "test" ? test : validation;
      CHECK(row.at("image") == std::to_string(next));
      CHECK(row.at("label") == std::to_string(next % 10));
      ++next;
      const bool hit = row.at("rank") == "1";
      CHECK(hit == (row.at("prediction") == row.at("label")));
      const double p = Number(row, "label_probability");
      CHECK(std::exp(-Number(row, "loss")) == doctest::Approx(p).epsilon(1e-7));
      CHECK((hit ? Number(row, "probability") == p : Number(row, "probability") >= p));
      CHECK(Number(row, "probability") >= 0.1 - 1e-9);  // of ten that add up to 1
    }
    CHECK(validation == 130);
    CHECK(test == 30);
  }

  TEST_CASE("a row is the row of its image: loss by loss from splits that grow by one") {
    const TempFolder folder;
    const std::vector<std::string> evaluate = SmallCheckpoint(folder);
    ADA_REQUIRE_EXIT(Run(With(evaluate, {"--predictions", "p.csv"}), folder.path()), 0);
    const Table rows = RowsWhere(Predictions(folder / "p.csv"), "split", "test");
    double before = 0;
    for (std::size_t n = 1; n <= 3; ++n) {
      const Outcome o =
          Run(With(evaluate, {"--set", "data.limit.test=" + std::to_string(n)}), folder.path());
      ADA_REQUIRE_EXIT(o, 0);
      const double sum = static_cast<double>(n) *
                         Number(RowsWhere(CsvOf(folder, o.out), "split", "test").at(0), "loss");
      CHECK(Number(rows.at(n - 1), "loss") == doctest::Approx(sum - before).epsilon(1e-5));
      before = sum;
    }
  }

  TEST_CASE("threads change no byte of the predictions") {
    const TempFolder folder;
    const std::vector<std::string> evaluate = SmallCheckpoint(folder);
    for (const std::string threads : {"1", "3"})
      ADA_REQUIRE_EXIT(
          Run(With(evaluate, {"--predictions", threads + ".csv", "--threads", threads}),
              folder.path()),
          0);
    CHECK(ReadBytes(folder / "1.csv") == ReadBytes(folder / "3.csv"));
  }

  TEST_CASE("rows of classes are what the predictions say") {
    const TempFolder folder;
    const Outcome o = Run(With(SmallCheckpoint(folder), {"--predictions", "p.csv", "--per-class"}),
                          folder.path());
    ADA_REQUIRE_EXIT(o, 0);
    CHECK(o.out.starts_with("split,class,name,images,top1,top5,precision\n"));
    const Table predictions = Predictions(folder / "p.csv"), classes = CsvOf(folder, o.out);
    REQUIRE(classes.size() == 20);
    for (const GoldenRow& row : classes) {
      CAPTURE(row.at("split"));
      CAPTURE(row.at("class"));
      const Table split = RowsWhere(predictions, "split", row.at("split"));
      const Table own = RowsWhere(split, "label", row.at("class"));
      const Table said = RowsWhere(split, "prediction", row.at("class"));
      const double hits =
          Count(own, [](const GoldenRow& r) { return r.at("prediction") == r.at("label"); });
      const double near = Count(own, [](const GoldenRow& r) { return Number(r, "rank") <= 5; });
      const auto n = static_cast<double>(own.size());
      CHECK(row.at("name").empty());
      CHECK(Number(row, "images") == n);
      CHECK(Number(row, "top1") == doctest::Approx(hits / n).epsilon(1e-8));
      CHECK(Number(row, "top5") == doctest::Approx(near / n).epsilon(1e-8));
      if (said.empty())
        CHECK(row.at("precision").empty());
      else
        CHECK(Number(row, "precision") ==
              doctest::Approx(hits / static_cast<double>(said.size())).epsilon(1e-8));
    }
  }

  TEST_CASE("predictions that cannot be written are exit code 6, and leave nothing") {
    const TempFolder folder;
    const std::vector<std::string> evaluate = SmallCheckpoint(folder);
    for (const char* path : {"nowhere/p.csv", "run"}) {
      const Outcome o = Run(With(evaluate, {"--predictions", path}), folder.path());
      ADA_CHECK_EXIT(o, 6);
      CHECK(Contains(o.err, path));
      CHECK(o.out.empty());  // before anything is evaluated
    }
    const Outcome full = Run(With(evaluate, {"--predictions", "p.csv"}), folder.path(), 1024);
    ADA_CHECK_EXIT(full, 6);
    CHECK(Contains(full.err, "File too large"));
    CHECK(!folder.Has("p.csv"));
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 4);
  }
}

}  // namespace
}  // namespace ada::testing
