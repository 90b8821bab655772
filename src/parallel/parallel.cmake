# Several processes, with MPI where the build asks for it (tools/build.sh --mpi).
option(ADA_MPI "several processes train one network: MPI" OFF)
ada_folder(parallel ada_io Threads::Threads)
get_target_property(parallel_sources ada_parallel SOURCES)
if(ADA_MPI)
  find_package(MPI REQUIRED COMPONENTS CXX)
  list(FILTER parallel_sources EXCLUDE REGEX "/parallel/absent\\.cpp$")
  target_link_libraries(ada_parallel PRIVATE MPI::MPI_CXX)
  # The functions of C alone: the old classes of C++ bring warnings and another library.
  target_compile_definitions(ada_parallel PRIVATE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
else()
  list(FILTER parallel_sources EXCLUDE REGEX "/parallel/mpi/")
endif()
set_target_properties(ada_parallel PROPERTIES SOURCES "${parallel_sources}")
