# Language, warnings, sanitizers, and the helpers that folders call.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
# CUDA sources, which tests compile for the emulator too.
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

option(LRMOE_WERROR "Treat warnings as errors" OFF)
set(LRMOE_SANITIZE "" CACHE STRING
    "Sanitizers: empty, address (with undefined), or thread")
set_property(CACHE LRMOE_SANITIZE PROPERTY STRINGS "" address thread)
option(LRMOE_CUDA "Build the CUDA backend where nvcc and cuBLAS are found" ON)
option(LRMOE_FUZZ "Build the libFuzzer targets (clang only)" OFF)

find_package(Threads REQUIRED)

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow
                    "$<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>"
                    "$<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>"
                    -Wvla -Wno-missing-field-initializers
                    -fno-strict-aliasing -ffp-contract=off)
add_compile_definitions(_GNU_SOURCE)
if(LRMOE_WERROR)
  add_compile_options(-Werror)
endif()
if(LRMOE_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(LRMOE_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
elseif(LRMOE_SANITIZE)
  message(FATAL_ERROR "LRMOE_SANITIZE=${LRMOE_SANITIZE}: not address or thread")
endif()

# lrmoe_library(NAME SOURCE...): the objects of one folder of liblrmoe.
function(lrmoe_library name)
  add_library(lrmoe_${name} OBJECT ${ARGN})
  set_target_properties(lrmoe_${name} PROPERTIES
    POSITION_INDEPENDENT_CODE ON)
  target_include_directories(lrmoe_${name} PRIVATE
    ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
endfunction()
