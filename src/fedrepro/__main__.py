from fedrepro.cli.warm import main

raise SystemExit(main())
