#include "tests/support/subprocess.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "tests/support/own_file.h"

namespace palimpsest::testing {

namespace fs = std::filesystem;

namespace {

fs::path new_folder() {
  std::string name = own_file("process-XXXXXX");
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder: " + name);
  return name;
}

int opened(const fs::path& path, int flags) {
  return open(path.c_str(), flags | O_CLOEXEC, 0600);
}

template <typename Condition>
bool wait_for(double seconds, Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace

Subprocess::Subprocess(const std::string& program, const std::vector<std::string>& arguments,
                       const std::map<std::string, std::string>& environment)
    : folder_(new_folder()) {
  std::signal(SIGPIPE, SIG_IGN);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  input_ = ends[1];
  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int out = opened(folder_ / "out", O_WRONLY | O_CREAT), err = opened(folder_ / "err", O_WRONLY | O_CREAT);

  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("no process");
  if (pid_ == 0) {
    dup2(ends[0], STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    std::signal(SIGPIPE, SIG_DFL);
    std::signal(SIGINT, SIG_DFL);
    for (const auto& [name, value] : environment)
      value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
    execv(program.c_str(), argv.data());
    _exit(127);
  }
  close(ends[0]);
  close(out);
  close(err);
}

Subprocess::~Subprocess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    wait();
  }
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void Subprocess::write(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(input_, text.data() + at, text.size() - at);
    if (n <= 0) return;  // the process ended or closed its input
    at += static_cast<std::size_t>(n);
  }
}

void Subprocess::close_input() {
  if (input_ >= 0) close(input_);
  input_ = -1;
}

std::string Subprocess::out() const {
  return file_content(folder_ / "out");
}

std::string Subprocess::err() const {
  return file_content(folder_ / "err");
}

bool Subprocess::wait_for_output(std::size_t bytes, double seconds) const {
  return wait_for(seconds, [&] { return fs::file_size(folder_ / "out") >= bytes; });
}

bool Subprocess::wait_for_error_text(const std::string& part, double seconds) const {
  return wait_for(seconds, [&] { return err().find(part) != std::string::npos; });
}

void Subprocess::wait_until_caught(int number) const {
  const std::string status = "/proc/" + std::to_string(pid_) + "/status";
  if (!fs::exists(status)) {
    std::this_thread::sleep_for(std::chrono::seconds(2));
    return;
  }
  wait_for(30, [&] {
    const std::string text = file_content(status);
    const auto at = text.find("SigCgt:");
    return at != std::string::npos && (std::stoull(text.substr(at + 7), nullptr, 16) >> (number - 1) & 1) != 0;
  });
}

void Subprocess::signal(int number) {
  kill(pid_, number);
}

Finished Subprocess::wait() {
  close_input();
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), out(), err()};
}

Finished run_program(const std::string& program, const std::vector<std::string>& arguments, const std::string& input,
                     const std::map<std::string, std::string>& environment) {
  Subprocess process(program, arguments, environment);
  process.write(input);
  return process.wait();
}

fs::path write_file(const std::string& name, const std::string& bytes) {
  const fs::path path = own_file(name);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

}  // namespace palimpsest::testing
