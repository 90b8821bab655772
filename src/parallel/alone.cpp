// A process alone: a world of one, in which what is said comes back.
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/error.h"
#include "parallel/world.h"

namespace ada::parallel {
namespace {

class EchoCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int ranks() const override { return 1; }
  void AllGather(const void* mine, std::size_t bytes, void* all) override {
    if (bytes > 0) std::memcpy(all, mine, bytes);
  }
  void AllToAll(const void* mine, std::size_t bytes, void* parts) override {
    if (bytes > 0) std::memcpy(parts, mine, bytes);
  }
};

class WorldOfOne final : public World {
 public:
  int rank() const override { return 0; }
  int ranks() const override { return 1; }
  const std::vector<std::string>& hosts() const override { return hosts_; }
  const std::vector<int>& nodes() const override { return nodes_; }
  std::string Library() const override { return ""; }
  Communicator& small() override { return echo_; }
  Communicator& large() override { return echo_; }
  void SetTimeout(double) override {}
  void WaitUntil(const std::function<bool()>& done) override { ADA_CHECK(done()); }
  [[noreturn]] void Abort(int exit_code) override { std::exit(exit_code); }

 private:
  std::vector<std::string> hosts_ = {"this host"};
  std::vector<int> nodes_ = {0};
  EchoCommunicator echo_;
};

}  // namespace

std::unique_ptr<World> MakeWorldOfOne() { return std::make_unique<WorldOfOne>(); }

World& Alone() {
  static const std::unique_ptr<World> alone = MakeWorldOfOne();
  return *alone;
}

}  // namespace ada::parallel
