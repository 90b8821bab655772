// `compare` for people: different networks, keys of one run alone, and lines of 80 columns.
#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "study/compared.h"

namespace ada::study {
namespace {

using testing::Compared;
using testing::Has;
using testing::Section;
using testing::Words;
using testing::WrittenRun;

TEST_SUITE("cpu") {
  TEST_CASE("different networks: each one's worst layers, and no rows") {
    const WrittenRun a("", false), b("data: {dataset: mnist, path: nowhere}\n", true, "resnet20");
    a.Tensor(1, "fc", "dx", "1", "0");
    a.Tensor(1, "conv", "dx", "8", "2");
    a.Append("evaluation.csv", "1,1,test,500,0.75,0.5,0.875\n");
    b.Append("evaluation.csv", "1,1,test,500,0.75,0.25,0.875\n");
    for (int i = 1; i <= 30; ++i)
      b.Tensor(1, "block" + std::to_string(i), "dx", "1", i == 3 ? "" : std::to_string(i));
    const auto lines = Compared(a, b);
    const auto of_a = Section(lines, "underflow of dx of A"),
               of_b = Section(lines, "underflow of dx of B");
    REQUIRE(of_a.size() == 3);
    CHECK(Words(of_a[1]) == std::vector<std::string>{"conv", "2.000", "2.000", "8", "8"});
    REQUIRE(of_b.size() == 10);
    CHECK(Words(of_b[1]) == std::vector<std::string>{"block3", "no", "gradient", "-", "1", "1"});
    CHECK(Words(of_b[2])[0] == "block30");
    CHECK(of_b.back() == "  lose less: 22 layers (--all shows them)");
    CHECK_FALSE(Has(lines, "rows"));
    CHECK(lines[lines.size() - 2] ==
          "in short: test top-1 50.00 % (A), 25.00 % (B); lost of dx, mean of the layers,");
    CHECK(lines.back() ==
          "  1.000 % (A), 15.931 % (B; no gradient in 1 layer); their networks differ");
    std::ostringstream all;
    Compare(a.path(), b.path(), all, true);
    CHECK(all.str().find("block1 ") != std::string::npos);
  }

  TEST_CASE("language models: nats, bits a byte, perplexity, tokens a second") {
    const std::string text = "task: language\ndata: {dataset: text, path: nowhere, context: 16}\n";
    const WrittenRun a(text, true, "gpt2"), b(text, true, "gpt2"), classes;
    for (const WrittenRun* run : {&a, &b}) {
      run->Step(1, "2");
      run->Append("evaluation.csv", "1,1,validation,500,2,0.5,0.875\n");
    }
    b.Append("evaluation.csv", "2,1,validation,500,3,0.75,0.875\n");
    b.files().Write("summary.json",
                    R"({"status": "finished", "seconds": 2, "images_per_second": 10.0,
                        "tokens_per_second": 1280})");
    const auto lines = Compared(a, b);
    const auto results = Section(lines, "results");
    const auto has = [&](const std::vector<std::string>& words) {
      return std::any_of(results.begin(), results.end(),
                         [&](const std::string& line) { return Words(line) == words; });
    };
    CHECK(has({"validation", "loss", "2", "3", "+1"}));
    CHECK(has({"validation", "loss,", "best", "2", "2", "0"}));
    CHECK(has({"validation", "bits", "per", "byte", "2.88539", "4.328085", "+1.442695"}));
    CHECK(has({"validation", "perplexity", "7.3891", "20.0855", "+12.6965"}));
    CHECK(has({"validation", "accuracy", "%", "50", "75", "+25"}));
    CHECK(has({"training", "perplexity,", "the", "same", "7.3891", "7.3891", "0"}));
    CHECK(has({"tokens/s", "-", "1280", "-"}));
    for (const std::string& line : results) {
      CHECK(line.find("top-") == std::string::npos);
      CHECK(line.find("images/s") == std::string::npos);
    }
    CHECK(std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
      return line.starts_with("in short: validation loss 2 nats, perplexity 7.389 (A), 3 nats,");
    }));
    classes.Append("evaluation.csv", "1,1,validation,500,1,0.25,0.875\n");
    const auto mixed = Section(Compared(a, classes), "results");
    const auto found = [&](const std::string& begin, const std::string& last) {
      return std::any_of(mixed.begin(), mixed.end(), [&](const std::string& line) {
        return line.find(begin) != std::string::npos &&
               Words(line).at(Words(line).size() - 3) == last;
      });
    };
    CHECK(found("validation perplexity", "7.3891"));
    CHECK(found("validation top-1 %, best", "-"));
  }

  TEST_CASE("keys that one run alone has stand below the table") {
    const WrittenRun a, b("scaling: {policy: dynamic}\n");
    const auto keys = Section(Compared(a, b), "configuration: ");
    REQUIRE(keys.size() >= 3);
    CHECK(Words(keys[1]) == std::vector<std::string>{"scaling.policy", "none", "dynamic"});
    CHECK(std::any_of(keys.begin(), keys.end(), [](const std::string& line) {
      return line.starts_with("  only B has scaling.preset pytorch");
    }));
  }
}

}  // namespace
}  // namespace ada::study
