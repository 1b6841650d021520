# What is installed: the library, its header, what builds against it need, the
# programs, and the documents.

include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lrmoe)

install(TARGETS lrmoe EXPORT lrmoe-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS lrmoe_preload lrmoe_nccl
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES $<TARGET_FILE_DIR:lrmoe_nccl>/libnccl-env-lrmoe.so
              $<TARGET_FILE_DIR:lrmoe_nccl>/libnccl-profiler-lrmoe.so
        DESTINATION ${CMAKE_INSTALL_LIBDIR})
# The stand-in for NCCL, apart and only where it is asked for:
#   cmake --install BUILD --component standin
if(TARGET lrmoe_standin)
  install(TARGETS lrmoe_standin COMPONENT standin EXCLUDE_FROM_ALL
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/lrmoe/standin
                  COMPONENT standin NAMELINK_COMPONENT standin)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/include/lrmoe.h
              ${PROJECT_SOURCE_DIR}/include/lrmoe_hint.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

# find_package(lrmoe) -> lrmoe::lrmoe
install(EXPORT lrmoe-targets NAMESPACE lrmoe:: DESTINATION ${package_dir})
configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/lrmoe-config.cmake.in
  ${PROJECT_BINARY_DIR}/lrmoe-config.cmake
  INSTALL_DESTINATION ${package_dir})
# Until 1.0 a minor release may break programs, as its SONAME then says.
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/lrmoe-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lrmoe-config.cmake
              ${PROJECT_BINARY_DIR}/lrmoe-config-version.cmake
        DESTINATION ${package_dir})

# pkg-config lrmoe; its prefix is relative to the file, so it can be moved.
file(RELATIVE_PATH LRMOE_PC_TO_PREFIX
     ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" LRMOE_PC_TO_PREFIX "${LRMOE_PC_TO_PREFIX}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/lrmoe.pc.in
               ${PROJECT_BINARY_DIR}/lrmoe.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/lrmoe.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Programs find the library beside themselves, wherever the prefix is moved.
get_property(programs GLOBAL PROPERTY LRMOE_PROGRAMS)

# Their man pages, from their --help.
if(NOT CMAKE_CROSSCOMPILING)
  set(manual ${PROJECT_BINARY_DIR}/man)
  file(MAKE_DIRECTORY ${manual})
  foreach(program ${programs})
    add_custom_command(OUTPUT ${manual}/${program}.1
      COMMAND ${PROJECT_SOURCE_DIR}/tools/man.sh $<TARGET_FILE:${program}>
        ${PROJECT_VERSION} ${manual}/${program}.1
      DEPENDS ${program} ${PROJECT_SOURCE_DIR}/tools/man.sh VERBATIM)
    list(APPEND pages ${manual}/${program}.1)
  endforeach()
  add_custom_target(lrmoe_manual ALL DEPENDS ${pages})
  install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
file(RELATIVE_PATH to_lib ${CMAKE_INSTALL_FULL_BINDIR}
     ${CMAKE_INSTALL_FULL_LIBDIR})
set_target_properties(${programs} PROPERTIES
  INSTALL_RPATH "$ORIGIN/${to_lib}")
install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

foreach(document README.md CHANGELOG.md LICENSE NOTICE)
  if(EXISTS ${PROJECT_SOURCE_DIR}/${document})
    install(FILES ${PROJECT_SOURCE_DIR}/${document}
            DESTINATION ${CMAKE_INSTALL_DOCDIR})
  endif()
endforeach()
