// What commands that compare arms print alike: sentences, JSON and CSV.
#pragma once
#include <string>
#include <vector>

#include "io/json_output.h"
#include "study/arms/arms.h"

namespace ada::study {

// "250 steps of 3 seeds; loss: the mean of the last 25".
std::string StepsText(const Measured& measured, const ArmPlan& plan);
// By how much chance alone moves a loss.
std::string NoiseText(const Measured& measured);
// The object of the command, with what is known of its arms.
OrderedJson ArmsJson(const Measured& measured, const ArmPlan& plan);
// A row for each training.
std::string TrainingsCsv(const Measured& measured);

}  // namespace ada::study
