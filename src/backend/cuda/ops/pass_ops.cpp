// See pass_ops.h.
#include "backend/cuda/ops/pass_ops.h"

#include <string>
#include <utility>

#include "backend/cuda/launch.h"
#include "backend/cuda/rounding/row_chain.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

// Arguments of a launch are copied when it is asked for: no host memory has to stay.
struct StorePassValues {
  ADA_HOST_DEVICE void operator()(std::int64_t) const { *to = values; }
  PassValues values;
  PassValues* to;
};

// An op of whatever kind with the pass's values set before each call.
template <class Kind>
class OpInPass : public Kind {
 public:
  OpInPass(PassStore& store, std::unique_ptr<Kind> op, bool takes_chain = false)
      : store_(store), op_(std::move(op)), takes_chain_(takes_chain) {}
  void Forward(const Pass& pass) override {
    if (!takes_chain_) store_.LaunchLeft();
    store_.Set(pass);
    op_->Forward(pass);
  }
  void Backward(const Pass& pass) override {
    Begin(pass);
    op_->Backward(pass);
  }
  void RefreshWeights(const Pass& pass) override {
    Begin(pass);
    op_->RefreshWeights(pass);
  }
  void FinishGradients(const Pass& pass) override {
    Begin(pass);
    op_->FinishGradients(pass);
  }

 protected:
  Kind& op() { return *op_; }

 private:
  void Begin(const Pass& pass) {
    store_.LaunchLeft();
    store_.Set(pass);
  }
  PassStore& store_;
  std::unique_ptr<Kind> op_;
  const bool takes_chain_;
};

// What runs on the side stream is work of a backward pass: the next steps of it may go on, all else
// waits. Only those of these steps wait that write a gradient which this work still reads
// (GradientsWrittenBy).
class LayerInPass final : public OpInPass<Op> {
 public:
  LayerInPass(PassStore& store, SideStream& side_stream, std::unique_ptr<Op> op,
              const std::vector<Range>& written, bool takes_chain)
      : OpInPass(store, std::move(op), takes_chain), side_stream_(side_stream), written_(written) {}
  void Forward(const Pass& pass) override {
    side_stream_.Join();
    OpInPass::Forward(pass);
  }
  void Backward(const Pass& pass) override {
    for (const Range& range : written_) side_stream_.BeforeWrite(range);
    OpInPass::Backward(pass);
  }
  void RefreshWeights(const Pass& pass) override {
    side_stream_.Join();
    OpInPass::RefreshWeights(pass);
  }
  void FinishGradients(const Pass& pass) override {
    side_stream_.Join();
    OpInPass::FinishGradients(pass);
  }

 private:
  SideStream& side_stream_;
  std::vector<Range> written_;
};

// Images and targets are sent outside of passes, so that these calls go to the op as they are.
class InputInPass final : public OpInPass<InputOp> {
 public:
  using OpInPass::OpInPass;
  void SetImages(const float* images, int rows) override { op().SetImages(images, rows); }
  ByteFeed* byte_feed() override { return op().byte_feed(); }
};

class LossInPass final : public OpInPass<LossOp> {
 public:
  using OpInPass::OpInPass;
  void SetTargets(const Targets& targets, int rows) override { op().SetTargets(targets, rows); }
  LossResult Result() override { return op().Result(); }
  std::int32_t* LabelMemory() override { return op().LabelMemory(); }
};

}  // namespace

PassStore::PassStore(Stream& stream, std::byte* memory, RowChain* chain)
    : stream_(stream), chain_(chain), values_(reinterpret_cast<PassValues*>(memory)) {}

void PassStore::LaunchLeft() {
  if (chain_ != nullptr) chain_->Launch();
}

void PassStore::Set(const Pass& pass) {
  // Within Backend::Run a launch here would be part of the recording and restore old values in each
  // replay.
  if (held_) return;
  const PassValues now = ValuesOf(pass);
  // Most ops of a pass find their values there already: one launch for a pass, not for each op.
  if (known_ && now == last_) return;
  ForEach(stream_, 1, StorePassValues{now, values_});
  last_ = now;
  known_ = true;
}

std::unique_ptr<Op> InPass(PassStore& store, SideStream& side_stream, std::unique_ptr<Op> op,
                           const std::vector<Range>& written, bool takes_chain) {
  if (op == nullptr) return nullptr;
  return std::make_unique<LayerInPass>(store, side_stream, std::move(op), written, takes_chain);
}
std::unique_ptr<InputOp> InPass(PassStore& store, std::unique_ptr<InputOp> op) {
  if (op == nullptr) return nullptr;
  return std::make_unique<InputInPass>(store, std::move(op));
}
std::unique_ptr<LossOp> InPass(PassStore& store, std::unique_ptr<LossOp> op) {
  if (op == nullptr) return nullptr;
  return std::make_unique<LossInPass>(store, std::move(op));
}

void Recordings::Run(std::uint64_t variant, const Pass& pass, const std::function<void()>& body,
                     bool joins_norms) {
  // While an outer call runs for the first time or is being recorded, inner calls are part of it.
  if (open_ || !stream_.switches().graphs) return body();
  const Key key{variant,   pass.rows,       pass.training,  pass.count, pass.accumulate,
                pass.bins, pass.whole_rows, pass.first_row, pass.part,  joins_norms};
  const auto [found, is_new] = variants_.try_emplace(key);
  Variant& known = found->second;
  if (!is_new && !known.refused && known.recording == nullptr) Record(known, body);
  if (known.recording != nullptr) return known.recording->Replay();
  if (known.refused) return body();
  const std::uint64_t before = messages();
  try {
    Open(body);
  } catch (...) {
    variants_.erase(found);
    throw;
  }
  known.has_messages = messages() != before;
}

void Recordings::Open(const std::function<void()>& body) {
  open_ = true;
  try {
    body();
  } catch (...) {
    open_ = false;
    throw;
  }
  open_ = false;
}

// The reason why recording fails need not prevent the same work from running directly; if it does,
// it shows again when `body` is called.
void Recordings::Record(Variant& variant, const std::function<void()>& body) {
  std::string why;
  try {
    variant.recording = stream_.Record([&] { Open(body); });
  } catch (const DeviceError& error) {
    why = error.what();
  }
  const bool recorded = variant.recording != nullptr;
  if (variant.has_messages && !link_->TrueInAll(recorded) && recorded) {
    variant.recording.reset();
    why = "another process could not";
  }
  if (variant.recording != nullptr) return;
  variant.refused = true;
  diagnostic_lines_.NotRecorded(why);
}

}  // namespace ada::backend::cuda
