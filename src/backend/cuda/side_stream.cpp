// See side_stream.h.
#include "backend/cuda/side_stream.h"

#include <algorithm>
#include <utility>

#include "backend/cuda/gradient_group.h"
#include "error.h"

namespace ada::backend::cuda {

SideStream::SideStream(const Context& main, const MakesMatmuls& matmuls)
    : main_(main.stream),
      own_(main.stream.switches().side_stream ? main.stream.MakeSide() : nullptr),
      stream_(own_ != nullptr ? *own_ : main_),
      matmuls_(matmuls(stream_)),
      context_{stream_,
               scratch_,
               main.shared,
               main.pass,
               main.options,
               *matmuls_,
               main.diagnostic_lines,
               main.memory,
               main.weight_refresh,
               *this,
               main.next_decisions,
               main.row_chain,
               main.link},
      group_(std::make_unique<GradientGroup>(stream_)) {
  if (own_ != nullptr) own_->set_trace(main_.trace(), 1);
}
SideStream::~SideStream() = default;

void SideStream::Run(const std::vector<Range>& reads, const std::function<void()>& work,
                     bool leaves) {
  if (!leaves) LaunchLeft();
  if (own_ == nullptr) {
    work();
  } else {
    if (running_ == works_.size()) works_.push_back({{}, main_.MakeEvent(), stream_.MakeEvent()});
    Work& now = works_[running_++];
    now.reads = reads;
    now.begin->Mark();
    stream_.WaitFor(*now.begin);
    work();
    now.end->Mark();
  }
  if (!open_) Join();
}

void SideStream::LaunchLeft() {
  if (group_->empty() && left_.empty()) return;
  // Taken first: Run joins where it is alone, which comes back to here.
  const std::vector<Range> reads = std::exchange(left_, {});
  Run(
      reads, [this] { group_->LaunchAll(); }, /*leaves=*/true);
}

// Works end in their order.
void SideStream::WaitFor(std::size_t work) {
  main_.WaitFor(*works_[work].end);
  done_ = work + 1;
}

void SideStream::BeforeWrite(const Range& written) {
  const auto is_written = [&](const Range& read) { return read.Overlaps(written); };
  if (std::any_of(left_.begin(), left_.end(), is_written)) LaunchLeft();
  for (std::size_t i = running_; i > done_; --i) {
    const std::vector<Range>& reads = works_[i - 1].reads;
    if (std::any_of(reads.begin(), reads.end(), is_written)) return WaitFor(i - 1);
  }
}

void SideStream::Join() {
  LaunchLeft();
  if (running_ > done_) WaitFor(running_ - 1);
  running_ = done_ = 0;
}

void SideStream::JoinTo(Stream& other) {
  ADA_CHECK(group_->empty());  // parts of sums over processes are not left
  if (running_ > done_) other.WaitFor(*works_[running_ - 1].end);
}

void SideStream::Close(bool was_open) {
  open_ = was_open;
  running_ = done_ = 0;
  group_->Forget();
  left_.clear();
}

}  // namespace ada::backend::cuda
