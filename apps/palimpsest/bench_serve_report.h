// The report of `bench serve`: a table, JSON, a chart.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "palimpsest/eval/chart.h"
#include "palimpsest/load/load_run.h"

namespace palimpsest::cli {

struct ServeRow {
  std::size_t method = 0;  // index in the list of methods
  std::string name;
  std::vector<LoadReport> reports;  // of each round

  long long completed() const;
};

nlohmann::json as_json(const ServeRow& row);
void print_table(const std::vector<ServeRow>& rows, std::size_t resident_peak);  // 0: unknown
Chart chart_of(const std::vector<ServeRow>& rows, const std::string& title);

}  // namespace palimpsest::cli
