# Installs the build into a temporary folder, builds tests/install/consumer with find_package, runs it.
# cmake -DBUILD=<build folder> -DCONSUMER=<source folder> -DSCRATCH=<folder> -DGENERATOR=... -DARGS=... -P check.cmake
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "${command}\nended with ${status}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# The version that docs/install.md names.
file(STRINGS ${CONSUMER}/../../../docs/install.md documented REGEX "find_package\\(palimpsest [0-9.]+ REQUIRED\\)")
if(NOT documented MATCHES "palimpsest ([0-9.]+) REQUIRED")
  message(FATAL_ERROR "docs/install.md has no find_package(palimpsest VERSION REQUIRED)")
endif()
set(documented ${CMAKE_MATCH_1})

file(REMOVE_RECURSE ${SCRATCH})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/prefix)
run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${SCRATCH}/build -G ${GENERATOR} -DCMAKE_BUILD_TYPE=Release
    -DDOCUMENTED=${documented} -DCMAKE_PREFIX_PATH=${SCRATCH}/prefix)
run(${CMAKE_COMMAND} --build ${SCRATCH}/build)
run(${SCRATCH}/build/consumer)
if(NOT output STREQUAL "palimpsest ${VERSION}\n")
  message(FATAL_ERROR "the consumer printed '${output}', not 'palimpsest ${VERSION}'")
endif()
# The engine alone.
run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${SCRATCH}/engine -G ${GENERATOR} -DCMAKE_BUILD_TYPE=Release -DPART=engine
    -DDOCUMENTED=${documented} -DCMAKE_PREFIX_PATH=${SCRATCH}/prefix)
run(${CMAKE_COMMAND} --build ${SCRATCH}/engine)
# The installed headers are complete: no header includes a header that is not installed.
file(GLOB_RECURSE headers RELATIVE ${SCRATCH}/prefix/include ${SCRATCH}/prefix/include/palimpsest/*.h)
set(all "")
foreach(header IN LISTS headers)
  string(APPEND all "#include \"${header}\"\n")
endforeach()
file(WRITE ${SCRATCH}/headers/main.cpp "${all}int main() {}\n")
file(COPY ${CONSUMER}/CMakeLists.txt DESTINATION ${SCRATCH}/headers)
run(${CMAKE_COMMAND} -S ${SCRATCH}/headers -B ${SCRATCH}/headers/build -G ${GENERATOR}
    -DDOCUMENTED=${documented} -DCMAKE_PREFIX_PATH=${SCRATCH}/prefix)
run(${CMAKE_COMMAND} --build ${SCRATCH}/headers/build)
file(REMOVE_RECURSE ${SCRATCH})
