// What batch_norm.h makes of the sums over parts, by the last block of the kernel that took them:
// one column of its channels, with the same sums in the same order as a launch of its own.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/batch_norm.h"
#include "backend/cuda/kernels/last_block.h"

namespace ada::backend::cuda {

// One block a column. Of: BatchStatistics or ReduceGradient, whose two sums over parts follow each
// other.
template <class Of, int kBlockThreads>
struct ChannelTotalsKernel {
  static constexpr int kThreads = kBlockThreads, kPhases = 4;
  static constexpr int kChannels = 64, kLanes = ChannelLanes::kLanes;
  static_assert(kThreads >= kChannels);
  // More values than this, of a column, are better left to several blocks.
  static constexpr std::int64_t kMostValues = 16384;
  struct Shared {
    double lanes[kLanes * kChannels];  // [lane, channel]
    double first[kChannels];
  };
  struct Own {};

  static bool Suits(std::int64_t channels, std::int64_t parts) {
    return parts * (channels < kChannels ? channels : kChannels) <= kMostValues;
  }

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    const std::int64_t begin = std::int64_t{at.block} * kChannels,
                       rest = of.channel_count() - begin;
    const int width = rest < kChannels ? static_cast<int>(rest) : kChannels;
    if constexpr (kPhase == 0)
      SumLanes<32>(
          at.thread, width, shared,
          [&](std::int64_t part, int c) { return of.LoadFirst(part, begin + c); },
          [&](std::int64_t part, int, float item) { return of.First(part, item); });
    if constexpr (kPhase == 2)
      SumLanes<16>(
          at.thread, width, shared,
          [&](std::int64_t part, int c) { return of.LoadSecond(part, begin + c); },
          [&](std::int64_t part, int c, const auto& item) {
            return of.Second(part, item, shared.first[c]);
          });
    if (at.thread >= width) return;
    if constexpr (kPhase == 1) shared.first[at.thread] = of.Total(Sum(at.thread, width, shared));
    if constexpr (kPhase == 3) {
      of.Finish(begin + at.thread, shared.first[at.thread], Sum(at.thread, width, shared));
      if (at.thread == 0 && of.note.bits != nullptr) WriteNote(at.blocks);
    }
  }

  Of of;
  std::uint32_t* columns_done = nullptr;  // zero between launches

 private:
  // The largest magnitude is of all columns: the last of them writes it.
  ADA_HOST_DEVICE void WriteNote(int columns) const {
    if (TakeTicket(columns_done) + 1 != static_cast<std::uint32_t>(columns)) return;
    of.note.Write();
    *columns_done = 0;
  }
  ADA_HOST_DEVICE static double Sum(int c, int width, const Shared& shared) {
    double sum = 0;
    for (int lane = 0; lane < kLanes; ++lane) sum += shared.lanes[lane * width + c];
    return sum;
  }
  // A thread sums every kThreads-th of the lanes of all channels, one after the other; loads run
  // ahead over their ends.
  template <int kAhead, class LoadPart, class Term>
  ADA_HOST_DEVICE void SumLanes(int thread, int width, Shared& shared, LoadPart&& load,
                                Term&& term) const {
    const std::int64_t parts = of.parts;
    const Steps steps{width, kThreads / width, kThreads % width,
                      static_cast<int>((parts + kLanes - 1) / kLanes)};
    Place loading{thread / width, thread % width, 0}, adding = loading;
    double sum = 0;
    while (adding.lane < kLanes) {
      decltype(load(parts, width)) items[kAhead];
      ADA_UNROLL
      for (int k = 0; k < kAhead; ++k) {
        const std::int64_t part = loading.Part();
        const bool any = loading.lane < kLanes && part < parts;
        items[k] = any ? load(part, loading.channel) : load(0, 0);
        loading.Move(steps);
      }
      ADA_UNROLL
      for (int k = 0; k < kAhead; ++k) {
        const std::int64_t part = adding.Part();
        const bool any = adding.lane < kLanes;
        if (any && part < parts) sum += term(part, adding.channel, items[k]);
        const int to = adding.lane * width + adding.channel;
        if (!adding.Move(steps)) continue;
        if (any) shared.lanes[to] = sum;
        sum = 0;
      }
    }
  }
  // How a thread comes from one lane of a channel to its next.
  struct Steps {
    int width;            // channels
    int lanes, channels;  // kThreads of them
    int turns;            // parts of a lane
  };
  // One part of a lane of a channel.
  struct Place {
    int lane, channel, turn;
    ADA_HOST_DEVICE std::int64_t Part() const { return lane + std::int64_t{turn} * kLanes; }
    // Whether it comes to another lane.
    ADA_HOST_DEVICE bool Move(const Steps& by) {
      if (++turn < by.turns) return false;
      turn = 0, lane += by.lanes, channel += by.channels;
      if (channel >= by.width) channel -= by.width, ++lane;
      return true;
    }
  };
};

// Sums: a kernel of channel_sums.h or channel_eights.h, whose blocks are in columns of as many
// channels.
template <class Sums, class Of>
using WithChannelTotals = LastBlockKernel<Sums, ChannelTotalsKernel<Of, Sums::kThreads>>;

}  // namespace ada::backend::cuda
