// Writes what TensorBoard shows of a run: the rows of the CSVs as scalars and histograms, in event
// files under <run>/tensorboard (log.tensorboard). Nothing reads them back; they hold wall-clock
// times.
//
//   loss accuracy lr scale grad_norm                 each step
//   evaluation/<split>/{loss,top1,top5}              each evaluation; in place of the hits:
//     {miou,mean_class_accuracy,pixel_accuracy}      segmentation
//     {map_07,map}                                   detection
//   scale/<layer> alpha/<layer>                      logged steps: S_out and alpha of the layer
//   scale/<layer>.dy                                 the scale at which its consumers' gradients
//                                                    meet
//   underflow_pct/<layer>.<tensor>                   of the values that are not zero
//   histogram/<layer>.<tensor>                       of log2|x|, x without its scale and not
//                                                    rounded
//
// A histogram's axis is log2|x|, and its buckets are those of ExponentBins: [e, e+1) holds the
// magnitudes from 2^e to below 2^(e+1). min and max are the ends of the lowest and the highest
// bucket that holds a value, sum and sum_squares those of log2|x| spread evenly in the buckets. num
// counts the finite values other than zero: zeros, inf and NaN have no place on the axis.
//
// The functions encode the bytes of event files by hand: records framed as TFRecords, each a
// protocol buffer of type Event, of which only the messages that are written here are known. The
// facts come from tensorboard's compat/proto/{event,summary}.proto and from TensorFlow's
// record_writer.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "number/stats.h"
#include "scaling/rules/rules.h"
#include "telemetry/run_logs.h"

namespace ada::telemetry {

// Returns the CRC-32C (Castagnoli, RFC 3720 B.4).
std::uint32_t Crc32c(std::string_view bytes);

// Returns a record as it stands in the file: length (8 bytes), its checksum, the record, its
// checksum. Numbers are little endian; a checksum is Crc32c turned right by 15 bits, plus
// 0xa282ead8.
std::string Framed(std::string_view record);

// HistogramProto: counts[i] values lie from limits[i - 1] (the first: min) up to limits[i].
struct EventHistogram {
  double min = 0, max = 0, num = 0, sum = 0, sum_squares = 0;
  std::vector<double> limits, counts;
};

// Append one Summary.Value to the bytes of a Summary. A value beyond float's range becomes inf.
void AppendScalar(std::string& summary, std::string_view tag, double value);
void AppendHistogram(std::string& summary, std::string_view tag, const EventHistogram& histogram);

// These make events, as records without their frame. `wall_time` is in seconds since 1970.
std::string VersionEvent(double wall_time);  // the first one of each file
// TensorBoard drops what earlier files have from this step on.
std::string SessionStartEvent(double wall_time, std::int64_t step);
std::string SummaryEvent(double wall_time, std::int64_t step, std::string_view summary);

inline constexpr char kEventFolder[] = "tensorboard";  // within the run's folder
bool IsEventFile(std::string_view name);
// Deletes the event files of an earlier run in a run's folder; other files stay. OutputError.
void RemoveEventFiles(const std::string& run_folder);
// Returns HistogramProto's numbers; limits is empty where all values are zero, inf or NaN.
EventHistogram ExponentHistogram(const ExponentBins& bins);

// Used by Recorder alone, which calls it with the rows that it logs. A resumed run begins another
// file.
class TensorBoard {
 public:
  // Starts a new file, after those that are there. `first_step`: the first step to come; beyond 1
  // (a run is resumed) TensorBoard is told to drop what earlier files say from there on. Throws
  // OutputError, as Flush does.
  TensorBoard(const std::string& run_folder, std::int64_t first_step);
  ~TensorBoard();
  TensorBoard(const TensorBoard&) = delete;
  TensorBoard& operator=(const TensorBoard&) = delete;

  // Rows are buffered; the values of one step become one event.
  void Step(const StepRow& row);
  void Scale(std::int64_t step, const std::string& layer, const scaling::ScaleDecision& decision);
  void Underflow(std::int64_t step, const std::string& layer, const std::string& tensor,
                 const TensorStats& stats);
  void Histogram(std::int64_t step, const std::string& layer, const std::string& tensor,
                 const ExponentBins& bins);
  void Evaluation(const EvaluationRow& row);
  void Classes(const ClassRow& all);  // the row of all classes

  void Flush();  // hands whole records to the system

 private:
  std::string& SummaryOf(std::int64_t step);
  void EndEvent();

  std::string path_, buffer_;
  std::string summary_;    // of the event being made; empty: none
  std::int64_t step_ = 0;  // its step
  int fd_ = -1;
};

}  // namespace ada::telemetry
