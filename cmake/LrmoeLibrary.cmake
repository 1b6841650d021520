# liblrmoe.so from the object libraries, and the same objects as an archive
# whose internal symbols tests can call.

set(LRMOE_OBJECTS
    $<TARGET_OBJECTS:lrmoe_base> $<TARGET_OBJECTS:lrmoe_topo>
    $<TARGET_OBJECTS:lrmoe_planner> $<TARGET_OBJECTS:lrmoe_kernels>
    $<TARGET_OBJECTS:lrmoe_collectives>)

add_library(lrmoe SHARED ${LRMOE_OBJECTS})
target_include_directories(lrmoe INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(lrmoe PRIVATE
  ${LRMOE_TOPO_LIBRARIES} Threads::Threads m ${CMAKE_DL_LIBS})
target_link_options(lrmoe PRIVATE
  LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/lrmoe.map)
if(NOT LRMOE_SANITIZE)
  target_link_options(lrmoe PRIVATE LINKER:--no-undefined)
endif()
# The ABI rule: until 1.0 a release that breaks programs raises SOVERSION.
set_target_properties(lrmoe PROPERTIES
  VERSION ${PROJECT_VERSION} SOVERSION 0
  LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/lrmoe.map)

add_library(lrmoe_internal STATIC ${LRMOE_OBJECTS})
target_include_directories(lrmoe_internal INTERFACE
  ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(lrmoe_internal INTERFACE
  ${LRMOE_TOPO_LIBRARIES} Threads::Threads m ${CMAKE_DL_LIBS})
