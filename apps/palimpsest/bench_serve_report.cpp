#include "palimpsest/bench_serve_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "palimpsest/progress.h"
#include "palimpsest/speed/statistics.h"
#include "palimpsest/system.h"

namespace palimpsest::cli {
namespace {

constexpr double kMs = 1e3;

template <typename Do>
void for_each_complete(const ServeRow& row, Do action) {
  for (const auto& report : row.reports)
    for (const auto& answer : report.answers)
      if (answer.complete) action(answer);
}

struct Times {  // ms, sorted; all rounds together
  std::vector<double> ttft, tpot, itl, e2e;

  explicit Times(const ServeRow& row) {
    for_each_complete(row, [&](const LoadAnswer& answer) {
      ttft.push_back(answer.ttft() * kMs);
      e2e.push_back((answer.end - answer.sent) * kMs);
      if (answer.tokens > 1)
        tpot.push_back((answer.token_times.back() - answer.token_times.front()) * kMs /
                       static_cast<double>(answer.tokens - 1));
      for (std::size_t i = 1; i < answer.token_times.size(); ++i)
        itl.push_back((answer.token_times[i] - answer.token_times[i - 1]) * kMs);
    });
    for (auto* values : {&ttft, &tpot, &itl, &e2e}) std::ranges::sort(*values);
  }
};

struct Rates {  // per second, for each round
  std::vector<double> requests, output, total;

  explicit Rates(const ServeRow& row) {
    for (const auto& report : row.reports) {
      double answers = 0, generated = 0, read = 0;
      for (const auto& answer : report.answers) {
        if (!answer.complete) continue;
        answers += 1;
        generated += static_cast<double>(answer.tokens);
        read += static_cast<double>(answer.prompt_tokens);
      }
      if (answers == 0) continue;
      requests.push_back(answers / report.seconds);
      output.push_back(generated / report.seconds);
      total.push_back((generated + read) / report.seconds);
    }
  }
};

struct Sums {
  long long failed = 0, prompt_tokens = 0, tokens = 0, evicted = 0, cache_peak = -1, cache_after = -1;
  long long kept_peak = -1, cached = 0;
  long long repeated = -1;  // -1: not of recorded sessions
  int running_peak = -1;
  std::string error;  // the first

  explicit Sums(const ServeRow& row) {
    for (const auto& report : row.reports) {
      running_peak = std::max(running_peak, report.peak.running);
      cache_peak = std::max(cache_peak, report.peak.cache_bytes);
      cache_after = std::max(cache_after, report.cache_bytes_after);
      kept_peak = std::max(kept_peak, report.peak.kept_bytes);
      for (const auto& answer : report.answers) {
        if (!answer.complete && failed++ == 0) error = answer.error;
        if (!answer.complete) continue;
        prompt_tokens += answer.prompt_tokens;
        tokens += answer.tokens;
        evicted += answer.evicted;
        cached += answer.cached;
        if (answer.repeated >= 0) repeated = std::max(0LL, repeated) + answer.repeated;
      }
    }
  }

  long long read() const { return prompt_tokens - cached; }
  double hit_rate() const { return ratio(cached, prompt_tokens); }
  // Prompt tokens read over those that no earlier prompt of the session begins with.
  double read_over_new() const { return ratio(read(), prompt_tokens - repeated); }

 private:
  static double ratio(long long a, long long b) {
    return static_cast<double>(a) / static_cast<double>(std::max(1LL, b));
  }
};

nlohmann::json times_json(const std::vector<double>& sorted) {
  if (sorted.empty()) return nullptr;
  return {{"mean", summarize(sorted).mean}, {"p50", percentile(sorted, 0.5)}, {"p99", percentile(sorted, 0.99)}};
}

nlohmann::json rate_json(const std::vector<double>& samples) {
  return {{"median", summarize(samples).median}, {"samples", samples}};
}

nlohmann::json known(long long value) {
  return value < 0 ? nlohmann::json(nullptr) : nlohmann::json(value);
}

std::string times_text(const std::vector<double>& sorted, int digits) {
  if (sorted.empty()) return "-";
  return fmt::format("{:.{}f} / {:.{}f} / {:.{}f}", summarize(sorted).mean, digits, percentile(sorted, 0.5), digits,
                     percentile(sorted, 0.99), digits);
}

// Output tokens per second, in equal intervals of the run.
ChartSeries output_over_time(const std::string& name, const LoadReport& report) {
  constexpr int kIntervals = 60;
  std::vector<double> counts(kIntervals, 0);
  const double width = std::max(report.seconds / kIntervals, 1e-9);
  for (const auto& answer : report.answers)
    for (const double at : answer.token_times)
      ++counts[static_cast<std::size_t>(std::clamp(at / width, 0.0, kIntervals - 1.0))];
  ChartSeries series{.name = name, .points = {}};
  for (int i = 0; i < kIntervals; ++i)
    series.points.emplace_back((i + 0.5) * width, counts[static_cast<std::size_t>(i)] / width);
  return series;
}

template <typename Value>
ChartSeries over_time(const std::string& name, const LoadReport& report, Value value) {
  ChartSeries series{.name = name, .points = {}};
  const std::size_t step = std::max<std::size_t>(1, report.states.size() / 400);
  for (std::size_t i = 0; i < report.states.size(); i += step)
    if (const double y = value(report.states[i]); y >= 0) series.points.emplace_back(report.states[i].at, y);
  return series;
}

ChartPanel panel_of(const char* title, const char* x, const char* y) {
  ChartPanel panel;
  panel.title = title;
  panel.x_label = x;
  panel.y_label = y;
  panel.from_zero = true;
  return panel;
}

ChartSeries percentiles_of(const std::string& name, const std::vector<double>& sorted) {
  ChartSeries series{.name = name, .points = {}};
  for (int i = 0; i <= 100; ++i)
    series.points.emplace_back(i, std::max(1e-3, percentile(sorted, static_cast<double>(i) / 100)));
  return series;
}

}  // namespace

long long ServeRow::completed() const {
  long long count = 0;
  for_each_complete(*this, [&](const LoadAnswer&) { ++count; });
  return count;
}

nlohmann::json as_json(const ServeRow& row) {
  const Times times(row);
  const Rates rates(row);
  const Sums sums(row);
  nlohmann::json seconds = nlohmann::json::array();
  for (const auto& report : row.reports) seconds.push_back(report.seconds);
  return {{"name", row.name},
          {"completed", row.completed()},
          {"failed", sums.failed},
          {"first_error", sums.error},
          {"rounds", row.reports.size()},
          {"seconds", seconds},
          {"prompt_tokens", sums.prompt_tokens},
          {"output_tokens", sums.tokens},
          {"evicted_tokens", sums.evicted},
          {"cached_tokens", sums.cached},
          {"hit_rate", sums.hit_rate()},
          {"repeated_tokens", known(sums.repeated)},
          {"read_over_new", sums.repeated < 0 ? nlohmann::json(nullptr) : nlohmann::json(sums.read_over_new())},
          {"ttft_ms", times_json(times.ttft)},
          {"tpot_ms", times_json(times.tpot)},
          {"itl_ms", times_json(times.itl)},
          {"e2e_ms", times_json(times.e2e)},
          {"requests_per_second", rate_json(rates.requests)},
          {"output_tokens_per_second", rate_json(rates.output)},
          {"total_tokens_per_second", rate_json(rates.total)},
          {"running_peak", known(sums.running_peak)},
          {"cache_bytes_peak", known(sums.cache_peak)},
          {"cache_bytes_after", known(sums.cache_after)},
          {"kept_bytes_peak", known(sums.kept_peak)}};
}

void print_table(const std::vector<ServeRow>& rows, std::size_t resident_peak) {
  std::size_t width = 6;
  for (const auto& row : rows) width = std::max(width, row.name.size());
  fmt::print("{:<{}}  {:>8}  {:>7}  {:>12}  {:>12}  {:>24}  {:>24}  {:>24}  {:>7}  {:>10}  {:>9}\n", "method", width,
             "answered", "req/s", "output tok/s", "total tok/s", "TTFT, ms", "TPOT, ms", "ITL, ms", "peak",
             "cache peak", "evicted");
  for (const auto& row : rows) {
    const Times times(row);
    const Rates rates(row);
    const Sums sums(row);
    fmt::print("{:<{}}  {:>8}  {:>7.2f}  {:>12.1f}  {:>12.1f}  {:>24}  {:>24}  {:>24}  {:>7}  {:>10}  {:>9}\n",
               row.name, width, row.completed(), summarize(rates.requests).median, summarize(rates.output).median,
               summarize(rates.total).median, times_text(times.ttft, 0), times_text(times.tpot, 2),
               times_text(times.itl, 2), sums.running_peak < 0 ? "-" : std::to_string(sums.running_peak),
               sums.cache_peak < 0 ? "-" : human_bytes(static_cast<std::size_t>(sums.cache_peak)),
               thousands(sums.evicted));
  }
  fmt::print("TTFT, TPOT, ITL: mean / p50 / p99; total tok/s: prompt and output tokens; peak: max concurrency\n");
  for (const auto& row : rows)
    if (const Sums sums(row); sums.repeated >= 0)
      fmt::print("{}: {} prompt tokens, {} cached ({:.1f}%), {} read: {:.2f} of the {} that are new; kept peak: {}\n",
                 row.name, thousands(sums.prompt_tokens), thousands(sums.cached), 100 * sums.hit_rate(),
                 thousands(sums.read()), sums.read_over_new(), thousands(sums.prompt_tokens - sums.repeated),
                 sums.kept_peak < 0 ? "unknown" : human_bytes(static_cast<std::size_t>(sums.kept_peak)));
  if (resident_peak > 0) fmt::print("resident memory of this process at its peak: {}\n", human_bytes(resident_peak));
  for (const auto& row : rows)
    if (const Sums sums(row); sums.failed > 0)
      fmt::print("{}: {} failed requests; the first: {}\n", row.name, sums.failed, sums.error);
}

Chart chart_of(const std::vector<ServeRow>& rows, const std::string& title) {
  ChartPanel generated = panel_of("Output tokens", "seconds", "tokens/s");
  ChartPanel running = panel_of("Running requests", "seconds", "requests");
  ChartPanel memory = panel_of("Pages in use", "seconds", "MiB");
  ChartPanel first = panel_of("TTFT", "percentile", "ms");
  ChartPanel itl = panel_of("ITL", "percentile", "ms");
  for (auto* panel : {&first, &itl}) {
    panel->log_y = true;
    panel->from_zero = false;
  }
  for (const auto& row : rows) {
    const LoadReport& last = row.reports.back();
    const Times times(row);
    generated.series.push_back(output_over_time(row.name, last));
    running.series.push_back(over_time(row.name, last, [](const LoadState& s) { return s.running; }));
    memory.series.push_back(over_time(row.name, last, [](const LoadState& s) {
      return s.cache_bytes < 0 ? -1 : static_cast<double>(s.cache_bytes) / (1 << 20);
    }));
    if (last.peak.kept_bytes > 0)
      memory.series.push_back(over_time(row.name + ", kept prefixes", last, [](const LoadState& s) {
        return s.kept_bytes < 0 ? -1 : static_cast<double>(s.kept_bytes) / (1 << 20);
      }));
    first.series.push_back(percentiles_of(row.name, times.ttft));
    if (!times.itl.empty()) itl.series.push_back(percentiles_of(row.name, times.itl));
  }
  Chart chart{.title = "Concurrent requests", .subtitle = title, .panels = {}};
  for (auto* panel : {&generated, &running, &memory, &first, &itl}) {
    std::erase_if(panel->series, [](const ChartSeries& series) { return series.points.empty(); });
    if (!panel->series.empty()) chart.panels.push_back(std::move(*panel));
  }
  return chart;
}

}  // namespace palimpsest::cli
