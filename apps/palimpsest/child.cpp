#include "palimpsest/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <cerrno>
#include <chrono>
#include <cstring>

#include "palimpsest/core/error.h"
#include "palimpsest/default_model.h"

namespace palimpsest::cli {
namespace {

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int ends[2];
    if (::pipe(ends) != 0) fail("no pipe to another program: {}", std::strerror(errno));
    read = ends[0], write = ends[1];
    ::fcntl(read, F_SETFD, FD_CLOEXEC);
    ::fcntl(write, F_SETFD, FD_CLOEXEC);
  }
  ~Pipe() {
    close_write();
    ::close(read);
  }
  void close_write() {
    if (write >= 0) ::close(write);
    write = -1;
  }
};

// Runs between fork and exec: only async-signal-safe calls.
[[noreturn]] void exec_child(const char* program, char* const* arguments, const Pipe& out, const Pipe& err,
                             [[maybe_unused]] pid_t parent) {
#ifdef __linux__
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the parent ended before prctl
#endif
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  ::dup2(out.write, STDOUT_FILENO);
  ::dup2(err.write, STDERR_FILENO);
  ::execv(program, arguments);
  ::_exit(127);
}

void read_both(const Pipe& out, const Pipe& err, ChildResult& result) {
  pollfd files[2] = {{out.read, POLLIN, 0}, {err.read, POLLIN, 0}};
  std::string* texts[2] = {&result.out, &result.err};
  char buffer[1 << 16];
  for (int open = 2; open > 0;) {
    if (::poll(files, 2, -1) < 0 && errno != EINTR) break;
    for (int i = 0; i < 2; ++i) {
      if (files[i].fd < 0 || (files[i].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
      const ssize_t got = ::read(files[i].fd, buffer, sizeof buffer);
      if (got > 0) texts[i]->append(buffer, static_cast<std::size_t>(got));
      if (got == 0 || (got < 0 && errno != EINTR)) files[i].fd = -1, --open;
    }
  }
}

}  // namespace

ChildResult run_this_program(const std::vector<std::string>& words) {
#ifdef __linux__
  const std::string program = "/proc/self/exe";  // the same binary even if its file was replaced meanwhile
#else
  const std::string program = this_program().string();
#endif
  std::vector<std::string> all = {program};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  for (std::string& word : all) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  Pipe out, err;
  ChildResult result;
  const auto start = std::chrono::steady_clock::now();
  const pid_t parent = ::getpid(), child = ::fork();
  if (child < 0) fail("'{}' cannot be started: {}", program, std::strerror(errno));
  if (child == 0) exec_child(program.c_str(), arguments.data(), out, err, parent);
  out.close_write();
  err.close_write();
  read_both(out, err, result);
  int status = 0;
  rusage usage{};
  while (::wait4(child, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
#ifdef __APPLE__
  result.peak_bytes = static_cast<std::size_t>(usage.ru_maxrss);
#else
  result.peak_bytes = static_cast<std::size_t>(usage.ru_maxrss) * 1024;
#endif
  return result;
}

}  // namespace palimpsest::cli
