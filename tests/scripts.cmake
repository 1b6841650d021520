# Tests of the tree as a whole: each script checks, and with --self-test plants
# the faults that it is to find.  They read sources and symbols, where a
# sanitizer's build has nothing new, and one compiler's tests of the scripts do.

if(LRMOE_SANITIZE)
  return()
endif()

# The objects of each folder of the library, for arrows.sh.
set(lists ${CMAKE_CURRENT_BINARY_DIR}/objects)
foreach(folder base topo planner kernels collectives)
  file(GENERATE OUTPUT ${lists}/${folder}.objects
    CONTENT "$<JOIN:$<TARGET_OBJECTS:lrmoe_${folder}>,\n>\n")
endforeach()
file(GENERATE OUTPUT ${lists}/plugin.objects CONTENT
  "$<JOIN:$<TARGET_OBJECTS:lrmoe_plugin>;$<TARGET_OBJECTS:lrmoe_nccl_plugin>,\n>\n")

# lrmoe_script(NAME SCRIPT ARGUMENT...): the test and its self-test.
function(lrmoe_script name script)
  set(command ${CMAKE_CURRENT_SOURCE_DIR}/${script})
  add_test(NAME ${name} COMMAND ${command} ${ARGN})
  set(tests ${name})
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    add_test(NAME ${name}_self_test COMMAND ${command} --self-test ${ARGN})
    list(APPEND tests ${name}_self_test)
  endif()
  set_tests_properties(${tests} PROPERTIES
    TIMEOUT 300 SKIP_RETURN_CODE 77 ENVIRONMENT CC=${CMAKE_C_COMPILER})
endfunction()

lrmoe_script(arrows arrows.sh ${PROJECT_SOURCE_DIR} ${lists})
lrmoe_script(exports exports.sh ${PROJECT_SOURCE_DIR} $<TARGET_FILE:lrmoe>)
lrmoe_script(plugin_library plugin/library.sh $<TARGET_FILE:lrmoe_preload>
  ${PROJECT_SOURCE_DIR}/plugin/preload/preload.map)
lrmoe_script(plugin_nccl_library plugin/library.sh $<TARGET_FILE:lrmoe_nccl>
  ${PROJECT_SOURCE_DIR}/plugin/nccl/nccl.map)
lrmoe_script(header header/header.sh ${PROJECT_SOURCE_DIR})

add_test(NAME install COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/install.sh
  ${CMAKE_COMMAND} ${PROJECT_BINARY_DIR} ${PROJECT_VERSION})
set_tests_properties(install PROPERTIES
  TIMEOUT 300 ENVIRONMENT CC=${CMAKE_C_COMPILER})
