"""Runs a command and prints, as one more line, the peak resident memory of it and of what it started, in bytes."""
import resource
import subprocess
import sys

code = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
sys.exit(code)
