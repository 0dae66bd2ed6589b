import js from '@eslint/js';
import hooks from 'eslint-plugin-react-hooks';
import ts from 'typescript-eslint';

export default ts.config(
  { ignores: ['lib', 'node_modules', 'style/index.js'] },
  js.configs.recommended,
  { files: ['page.mjs'], languageOptions: { globals: { console: false, process: false } } },
  {
    files: ['src/**/*.{ts,tsx}', 'test/**/*.{ts,tsx}'],
    extends: [...ts.configs.strictTypeChecked, ...ts.configs.stylisticTypeChecked],
    plugins: { 'react-hooks': hooks },
    languageOptions: {
      parserOptions: { project: ['tsconfig.json', 'tsconfig.test.json'] }
    },
    rules: {
      ...hooks.configs.recommended.rules,
      eqeqeq: 'error',
      // The runner waits for its own.
      '@typescript-eslint/no-floating-promises': [
        'error',
        {
          allowForKnownSafeCalls: [
            { from: 'package', package: 'node:test', name: ['describe', 'it', 'suite', 'test'] }
          ]
        }
      ],
      // An empty name is no name.
      '@typescript-eslint/prefer-nullish-coalescing': [
        'error',
        { ignorePrimitives: { string: true } }
      ],
      // Signals are given the method and its object.
      '@typescript-eslint/unbound-method': 'off',
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }]
    }
  }
);
