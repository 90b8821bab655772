// The factory of this backend's ops and the owner of its memory.
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "backend/cuda/context.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/matmul/weight_copies.h"
#include "backend/cuda/matmuls.h"
#include "backend/cuda/ops/pass_ops.h"
#include "backend/cuda/rounding/next_decisions.h"
#include "backend/cuda/rounding/row_chain.h"
#include "backend/cuda/side_stream.h"
#include "backend/cuda/trace.h"
#include "backend/reductions.h"
#include "backend/values/all.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::unique_ptr<Stream> stream, const BackendWords& words,
              const DeviceOptions& options, std::unique_ptr<Link> link)
      : words_(words),
        options_(options),
        stream_(std::move(stream)),
        matmuls_(MakeMatmuls(*stream_, options_)),
        pass_(*stream_, memory_.Allocate(sizeof(PassValues)), &row_chain_),
        context_{*stream_,        scratch_,          shared_,   pass_.values(),  options_,
                 *matmuls_,       diagnostic_lines_, memory_,   weight_refresh_, side_stream_,
                 next_decisions_, row_chain_,        link.get()},
        side_stream_(context_, [this](Stream& stream) { return MakeMatmuls(stream, options_); }),
        link_(std::move(link)) {}

  std::string Describe() const override { return words_.describe; }
  std::string InstructionSet() const override { return words_.instruction_set; }
  std::vector<std::string> Diagnostics() const override { return diagnostic_lines_.diagnostics(); }
  std::vector<std::string> Warnings() const override { return diagnostic_lines_.Warnings(); }

  std::byte* Allocate(std::size_t bytes) override { return memory_.AllocateZeroed(bytes); }
  std::size_t allocated_bytes() const override {
    return memory_.bytes() + scratch_.bytes() + matmuls_->workspace_bytes() + side_stream_.bytes();
  }
  void Upload(std::byte* to, const void* from, std::size_t bytes) override {
    stream_->CopyToDevice(to, from, bytes);
  }
  void Download(void* to, const std::byte* from, std::size_t bytes) override {
    stream_->CopyToHost(to, from, bytes);
    stream_->Synchronize();
  }
  void Synchronize() override { stream_->Synchronize(); }
  // Kernels number values with 32 bits.
  bool rounds_by_tables() const override { return false; }
  std::int64_t most_values() const override { return std::numeric_limits<std::uint32_t>::max(); }
  SharedMemory AllocateShared(std::size_t bytes) override { return shared_.Allocate(bytes); }
  void Fetch(const SharedMemory& memory) override {
    row_chain_.Launch();
    shared_.Fetch(memory);
  }
  void Send(const SharedMemory& memory) override { shared_.Send(memory); }

  void Run(std::uint64_t variant, const Pass& pass, const std::function<void()>& body) override {
    const PassStore::Scope held(pass_, pass);
    std::optional<NextDecisions::Run> run;
    std::optional<RowChain::Run> chains;
    // Plans that were made since the last step may want more memory, and nothing can be allocated
    // while a step is recorded.
    if (!recordings_.open()) {
      GrowScratch();
      run.emplace(next_decisions_);
      chains.emplace(row_chain_);
    }
    const auto with_side_stream = [&] {
      SideStream::Scope side_stream(side_stream_);
      row_chain_.Around(body);
      side_stream.End();
    };
    recordings_.Run(variant, pass, with_side_stream, NormsLink(link_.get()) != nullptr);
  }

  void RefreshWeights(const std::vector<Op*>& ops, const Pass& pass) override {
    weight_refresh_.InOneLaunch(pass, [&] { Backend::RefreshWeights(ops, pass); });
  }

  void Read(const Tensor& tensor, std::int64_t rows, float* out) override {
    ADA_CHECK(rows >= 0 && rows <= tensor.shape.n);
    const std::int64_t values = rows * tensor.shape.per_image();
    std::vector<std::byte> bytes(static_cast<std::size_t>(values) * BytesOf(tensor.storage));
    Download(bytes.data(), tensor.data, bytes.size());
    const TensorSpan span{bytes.data(), tensor.storage};
    for (std::int64_t i = 0; i < values; ++i) out[i] = Load(span, i);
  }
  bool takes_bytes() const override { return true; }
  int BlockImages(const Shape& shape) const override { return backend::BlockImages(shape); }

  std::size_t ImageSourceBytes(const ImageSourceSpec& s) const override {
    return ResidentBytes(context_, s);
  }
  std::unique_ptr<ImageSource> MakeImageSource(const ImageSourceSpec& s) override {
    return MakeImageSourceOp(context_, s);
  }
  std::unique_ptr<InputOp> MakeInput(const InputSpec& s) override {
    return InPass(pass_, MakeInputOp(context_, s));
  }
  std::unique_ptr<Op> Make(const OpSpec& spec) override {
    return std::visit(
        [&](const auto& s) {
          if constexpr (requires { s.sums; }) {
            if (AnyAccumulates(s.sums))
              throw ConfigError("precision.accumulate: layer " + s.layer +
                                ": the CUDA backend makes sums in fp32 alone; leave the key out, "
                                "or train on the CPU (device: cpu)");
            if (AnyJudged(s.sums))
              throw ConfigError(
                  "log.what_if[].accumulate: the CUDA backend makes sums in fp32 alone; leave the "
                  "scenario out, or train on the CPU (device: cpu)");
          }
          if constexpr (requires { s.attention_operands; })
            if (AnyRounds(s.attention_operands))
              throw ConfigError("precision.operands.attention: layer " + s.layer +
                                ": the CUDA backend multiplies attention's operands as they are "
                                "stored; leave the key out, or train on the CPU (device: cpu)");
          if constexpr (requires { s.operands; })
            for (const OperandRounding& operand : s.operands)
              if (operand.rounds && operand.block && operand.block->rule == BlockRule::kHiFloat4)
                throw ConfigError("precision.operands: layer " + s.layer +
                                  ": the CUDA backend has no hifloat4; train on the CPU (device: "
                                  "cpu)");
          std::unique_ptr<Op> op;
          if constexpr (HasValues<std::decay_t<decltype(s)>>)
            op = MakeValueOp(context_, spec);
          else
            op = MakeOp(context_, s);
          return InPass(pass_, side_stream_, std::move(op), GradientsWrittenBy(s),
                        TakesRowChain<std::decay_t<decltype(s)>>());
        },
        spec);
  }
  std::unique_ptr<LossOp> MakeLoss(const LossSpec& s) override {
    return std::visit(
        [this](const auto& spec) { return InPass(pass_, MakeLossOp(context_, spec)); }, s);
  }
  std::unique_ptr<UpdateOp> MakeUpdate(const UpdateRule& rule, std::vector<UpdateSlot> slots,
                                       std::vector<WatchedRounding> watched) override {
    return MakeUpdateOp(context_, rule, slots, watched);
  }
  std::unique_ptr<AverageOp> MakeAverage(std::vector<AverageSlot> slots) override {
    return MakeAverageOp(context_, slots);
  }
  std::unique_ptr<GradientSums> MakeGradientSums(const GradientSumsSpec& s) override {
    return link_ == nullptr ? nullptr : MakeGradientSumsOp(context_, s);
  }

 private:
  void GrowScratch() {
    scratch_.Grow();
    matmuls_->GrowWorkspace();
    side_stream_.Grow();
  }

  const BackendWords words_;
  const DeviceOptions options_;
  DiagnosticLines diagnostic_lines_;
  std::unique_ptr<Stream> stream_;
  Trace trace_{*stream_, stream_->switches().trace};
  Memory memory_{*stream_};
  Scratch scratch_{*stream_};
  SharedBlocks shared_{*stream_, memory_};
  std::unique_ptr<Matmuls> matmuls_;
  RowChain row_chain_{*stream_};
  PassStore pass_;
  WeightRefresh weight_refresh_{*stream_, memory_};
  NextDecisions next_decisions_;
  const Context context_;
  SideStream side_stream_;
  // Ends before streams and memory, which may be waited for, and after recordings, which hold its
  // messages and work of the streams of both.
  std::unique_ptr<Link> link_;
  Recordings recordings_{*stream_, diagnostic_lines_, link_.get()};
};

}  // namespace

std::unique_ptr<Backend> MakeBackendOn(std::unique_ptr<Stream> stream, const BackendWords& words,
                                       const DeviceOptions& options, std::unique_ptr<Link> link) {
  return std::make_unique<CudaBackend>(std::move(stream), words, options, std::move(link));
}

}  // namespace ada::backend::cuda
